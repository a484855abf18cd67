//go:build race

package guesttest

// RaceFactor is how much more memory and time a program takes under the race
// detector.
const RaceFactor = 5
