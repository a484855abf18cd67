//go:build !linux

package drivertest

// hostInotify does nothing where boxes have a kernel of their own.
func hostInotify() error { return nil }
