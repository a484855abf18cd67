//go:build race

package guest

// raceFactor is how much more memory a program takes that the race detector
// watches: it keeps several words for each that the program touches.
const raceFactor = 5
