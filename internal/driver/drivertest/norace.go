//go:build !race

package drivertest

// raceFactor multiplies the timeouts of tests.
const raceFactor = 1
