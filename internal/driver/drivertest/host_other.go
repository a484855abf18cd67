//go:build !linux

package drivertest

// hostInotify does nothing: boxes do not share this machine's kernel.
func hostInotify() error { return nil }
