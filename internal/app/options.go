package app

import (
	"log/slog"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Options are the parameters of [Open].
type Options struct {
	// Config must be valid.
	Config config.Config
	// Log receives log records; nil discards them.
	Log *slog.Logger
	// Version is the version that the program reports to clients.
	Version string
	// Detached makes sandboxes outlive this process. The next process finds them
	// again.
	Detached bool
	// Metrics makes the System count events for /metrics.
	Metrics bool
	// Pool keeps a warm pool of sandboxes, if the configuration sets its size.
	Pool bool
	// Secrets reads the configuration's secrets for sandboxes. Set it if the
	// caller makes sandboxes.
	Secrets bool
	// CommandLine is true if the local user is a person at a command line. That
	// user may name any registry.
	CommandLine bool
	// Passive starts no background work and no control socket. It is for callers
	// that only read state.
	Passive bool
	// Looks is true if the caller makes no sandboxes. A driver with any boundary
	// is then accepted.
	Looks bool
	// Getenv returns the environment variables that configure the export of
	// traces and metrics; nil exports none.
	Getenv func(string) string
	// TestDrivers are drivers by name, in addition to the build's. Only tests
	// set it.
	TestDrivers map[string]Maker
	// ProbeNetwork has [Doctor] start Pods that try whether a cluster denies their
	// traffic.
	ProbeNetwork bool
	// TestAuto are the drivers that "auto" tries, instead of the build's. Only
	// tests set it.
	TestAuto []string

	removal *store.Removal   // of the state directory, or nil
	now     func() time.Time // clock of tokens; nil is time.Now
}

// A Maker makes a driver. It does no work that can fail because of this machine:
// the driver's Probe does that.
type Maker func(DriverOptions) (driver.Driver, error)

// DriverOptions are the parameters of a driver.
type DriverOptions struct {
	StateDir string // absolute path of an existing directory
	Guest    string // path of the guest's program
	Images   config.Images
	Docker   config.Docker
	E2B      config.E2B
	// StateKey opens encrypted states of sandboxes; nil if there is none. Encrypt encrypts
	// further ones.
	StateKey sealed.Key
	Encrypt  bool
	Log      *slog.Logger

	Kubernetes config.Kubernetes
}
