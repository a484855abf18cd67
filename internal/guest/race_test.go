//go:build race

package guest

// raceFactor is how much more memory and time a program takes under the race
// detector.
const raceFactor = 5
