//go:build !linux

package bench

func load() string { return "" }
