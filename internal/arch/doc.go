// Package arch holds no code: its tests keep the rules of docs/ARCHITECTURE.md.
//
// They parse the sources instead of asking the go command, so that the test
// cache sees every file they depend on, and so that files for other systems
// are held to the same rules.
package arch
