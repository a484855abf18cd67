//go:build !linux || nogvisor

package app

// embedded names the drivers that need nothing else on this machine: none.
func embedded() []string { return nil }

// embeddedMakers returns those drivers.
func embeddedMakers() map[string]Maker { return nil }

// networkProgram returns the program that carries the networks of drivers that
// have none of their own: none.
func networkProgram() string { return "" }

// embeddedChecks are what those drivers know about their needs.
func embeddedChecks() []Check { return nil }
