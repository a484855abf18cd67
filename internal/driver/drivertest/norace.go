//go:build !race

package drivertest

// raceFactor stretches the times within which something must happen.
const raceFactor = 1
