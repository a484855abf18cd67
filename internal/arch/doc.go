// Package arch holds no code. Its tests check the rules of docs/ARCHITECTURE.md.
//
// They parse the sources instead of running the go command. So the test cache
// sees every file that they depend on, and the rules also apply to files for
// other systems.
package arch
