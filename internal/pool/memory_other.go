//go:build !linux

package pool

// HasRoom returns true: the machine's free memory is unknown here.
func HasRoom(int64) bool { return true }
