//go:build race

package drivertest

// raceFactor stretches the times within which something must happen: the race
// detector makes both sides of a test several times slower.
const raceFactor = 3
