package sandbox

import "time"

// A Language is one that a sandbox was asked about.
type Language struct {
	Name    string   `json:"language"`
	Aliases []string `json:"aliases,omitempty"`
	// Version is that of what runs it; it is empty if it does not say. Program
	// is what that is; it is empty if there is none, and Missing says what to
	// do then.
	Version string `json:"version,omitempty"`
	Program string `json:"program,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Contexts says that it has them, Installer what installs its packages.
	Contexts  bool   `json:"contexts,omitempty"`
	Installer string `json:"installer,omitempty"`
	// Packages are the notable ones that are there, and those that were
	// installed by [PackagesRequest].
	Packages []Package `json:"packages,omitempty"`
}

// A Package is one that is there in some version.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A PackagesRequest asks for packages of a language to be installed, into the
// environment of the sandbox's workspace.
type PackagesRequest struct {
	// SandboxID names the sandbox; with "", a fresh one is made as New says.
	SandboxID string
	New       CreateRequest
	// Language is one that has an installer, or the name of an installer.
	Language string
	// Packages are names with or without versions, as the installer has them,
	// or paths of files in the sandbox.
	Packages []string
	// Timeout is how long it may take; zero takes the default for packages.
	Timeout time.Duration
}
