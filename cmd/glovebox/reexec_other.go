//go:build !linux || nogvisor

package main

// reexec does nothing: this program has no helper processes.
func reexec() {}
