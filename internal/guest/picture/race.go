//go:build race

package picture

// raceFactor is how much more memory and time a program takes under the race
// detector. The detector keeps several words for each word that it watches.
const raceFactor = 5
