//go:build !linux

package app

// hasRoom reports whether the machine has so many bytes of memory to spare,
// which is not known here.
func hasRoom(int64) bool { return true }
