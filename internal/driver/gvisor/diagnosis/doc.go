// Package diagnosis finds the reason why this machine refuses to start the processes
// of a box, and a remedy.
//
// The driver and its supervisor import this package. It keeps no state.
package diagnosis
