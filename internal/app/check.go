package app

import (
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A CheckStatus is the result of a check.
type CheckStatus string

// The statuses of a check.
const (
	CheckOK      CheckStatus = "ok"
	CheckNote    CheckStatus = "note"    // information; everything works
	CheckWarning CheckStatus = "warning" // sandboxes work, but with a disadvantage
	CheckFailed  CheckStatus = "failed"  // sandboxes do not work
)

// A Check is one check of the doctor.
type Check struct {
	Name   string      `json:"name"`
	Status CheckStatus `json:"status"`
	Detail string      `json:"detail"`
	// Fix is the remedy; "" if there is none.
	Fix string `json:"fix,omitempty"`
	// Manifest is the YAML of objects that a cluster lacks; "" if it lacks none.
	Manifest string `json:"manifest,omitempty"`
}

// Works reports whether no check failed, so sandboxes work.
func Works(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return c.Status == CheckFailed })
}

// failed returns a check that failed by an error.
func failed(name string, err error) Check {
	return Check{Name: name, Status: CheckFailed, Detail: err.Error(), Fix: sandbox.HintOf(err)}
}
