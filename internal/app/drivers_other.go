//go:build !linux || nogvisor

package app

// embedded returns the drivers that need no other software on this machine:
// none.
func embedded() []string { return nil }

// embeddedMakers returns the makers of those drivers.
func embeddedMakers() map[string]Maker { return nil }

// networkProgram returns "": there is no such program on this platform.
func networkProgram() string { return "" }

// embeddedChecks returns the embedded drivers' checks of this machine: none.
func embeddedChecks() []Check { return nil }
