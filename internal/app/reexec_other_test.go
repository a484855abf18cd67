//go:build !linux || nogvisor

package app

func reexec() {}
