package app

import (
	"context"
	"log/slog"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/audited"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/auto"
	"github.com/glovebox-dev/glovebox/internal/hostfiles"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/metrics"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/trace"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// A System is a running Glovebox. [Open] makes it, and the caller must Close it.
type System struct {
	// Engine makes sandboxes and runs programs in them. Edges send it all their
	// requests.
	Engine *audited.Engine
	// Operator sees and stops the objects of all principals, for the command line.
	*operator.Operator

	opts   Options
	log    *slog.Logger
	choice auto.Choice
	driver driver.Driver // the chosen driver, or the pool around it
	warmer *warmer       // nil without a pool
	store  *store.Store
	auth   *auth.Auth
	audit  *audit.Recorder // nil if actions are not recorded

	closeAudit func() error
	host       *hostfiles.Directories // allowed directories of a client on this machine; nil if detached

	workspaces workspace.Keeper
	secrets    []sandbox.Secret
	served     *files      // nil unless over HTTP
	ports      *ports      // nil unless over HTTP
	local      *localPorts // nil unless over stdio
	control    *control.Server
	shares     *httpserver.Shares
	mcpShares  *ledger.Shares
	metrics    *metrics.Set // nil without metrics

	exporter   *metrics.Exporter // nil if metrics are not exported
	traces     *trace.Exporter   // nil if traces are not exported
	stop       context.CancelFunc
	background sync.WaitGroup
}

// DriverName returns the name of the driver in use.
func (s *System) DriverName() string { return s.driver.Info().Name }

// EndsByLease reports whether sandboxes end at their limits without a process of
// Glovebox.
func (s *System) EndsByLease() bool { return s.driver.Info().Features.Lease }

// Config returns the configuration in use.
func (s *System) Config() config.Config { return s.opts.Config }
