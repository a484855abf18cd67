//go:build !linux

package docker_test

// carryNetwork does nothing: there are no such processes here.
func carryNetwork() {}
