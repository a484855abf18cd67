package sandbox

import "time"

// A Language describes a programming language in a sandbox.
type Language struct {
	Name    string   `json:"language"`
	Aliases []string `json:"aliases,omitempty"`
	// Version is the version of Program, or empty if Program does not report one.
	// Program is the program that runs the language, or empty if there is none.
	// Missing then says how to get one.
	Version string `json:"version,omitempty"`
	Program string `json:"program,omitempty"`
	Missing string `json:"missing,omitempty"`
	// Contexts is true if the language has contexts. Installer is the program
	// that installs its packages.
	Contexts  bool   `json:"contexts,omitempty"`
	Installer string `json:"installer,omitempty"`
	// Packages are the notable installed packages, and the packages that a
	// [PackagesRequest] installed.
	Packages []Package `json:"packages,omitempty"`
}

// A Package is an installed package and its version.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// A PackagesRequest asks to install packages of a language into the environment
// of the sandbox's workspace.
type PackagesRequest struct {
	// SandboxID names the sandbox. With "", a new sandbox is made as New says.
	SandboxID string
	New       CreateRequest
	// Language is a language that has an installer, or the name of an installer.
	Language string
	// Packages are names with or without versions, in the installer's syntax, or
	// paths of files in the sandbox.
	Packages []string
	// Timeout bounds the installation. Zero takes the default for packages.
	Timeout time.Duration
}
