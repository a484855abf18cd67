//go:build !linux

package bench

// memoryOf returns false: memory is not measured on this platform.
func memoryOf(string) (int64, bool) { return 0, false }

func ownMemory() int64 { return 0 }

func hardware() (string, int64) { return "", 0 }
