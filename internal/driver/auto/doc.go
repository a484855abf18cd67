// Package auto chooses the driver of a program: the first candidate that works
// here and that the configuration accepts.
//
// Package app gives it the candidates, and closes the chosen driver. The package
// knows no driver by name, and keeps no state.
package auto
