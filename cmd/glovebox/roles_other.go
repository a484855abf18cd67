//go:build !linux || nogvisor

package main

// runRole does nothing: this program has no helper processes.
func runRole() {}
