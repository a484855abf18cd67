//go:build race

package drivertest

// raceFactor multiplies the timeouts of tests: the race detector makes both
// sides of a test several times slower.
const raceFactor = 3
