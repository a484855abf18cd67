//go:build !linux

package bench

// Memory is not measured here.
func memoryOf(string) (int64, bool) { return 0, false }

func ownMemory() int64 { return 0 }

func hardware() (string, int64) { return "", 0 }
