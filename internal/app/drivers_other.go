//go:build !linux || nogvisor

package app

import (
	"runtime"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// makers returns the drivers of this build: none.
func makers() map[string]Maker { return map[string]Maker{} }

// autoOrder names the drivers that "auto" stands for.
func autoOrder() []string { return nil }

func noDriver() error {
	return sandbox.WithHint(
		sandbox.Errorf(sandbox.Unsupported, "the embedded sandbox needs Linux, and this is a program for %s without it", runtime.GOOS),
		"run glovebox on a Linux machine (a virtual machine will do) and use it from here over HTTP: glovebox serve")
}

// driverChecks are what a driver knows about its needs.
func driverChecks(string) []Check { return nil }
