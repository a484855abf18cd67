//go:build !race

package guesttest

// RaceFactor is 1 without the race detector.
const RaceFactor = 1
