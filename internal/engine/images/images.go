package images

import (
	"context"
	"log/slog"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// Options configure Images. All fields are required.
type Options struct {
	Driver   driver.Driver
	Records  Records
	Runners  interpreter.Table
	Language string // of code whose caller named none
	Log      *slog.Logger
	Now      func() time.Time // the time of records
	// CommandLine means that [sandbox.Local] is a person at a command line.
	CommandLine bool
}

// Records are the records of images that Images needs.
type Records interface {
	ImageRecords(ctx context.Context, driver string) (store.ImageRecords, error)
	SurveyImages(ctx context.Context, driver string, unknown []string) error
	RecordImages(ctx context.Context, driver string, p sandbox.Principal, ids ...string) error
	ForgetImages(ctx context.Context, driver string, there []string, at time.Time) error
	BeginImagePull(ctx context.Context, driver, name string, p sandbox.Principal) (int64, error)
	EndImagePull(ctx context.Context, id int64, image string, keep bool) error
	Now() time.Time
}

// Images decides which images the sandboxes of a principal are made of, and
// pulls them.
type Images struct {
	opts     Options
	name     string          // of the driver
	features driver.Features // of the driver
	pulls    *fair.Pool
}

// maxPulls bounds the pulls in progress. One principal alone gets half as many.
const maxPulls = 4

// New returns the images of a driver.
func New(opts Options) *Images {
	info := opts.Driver.Info()
	return &Images{
		opts: opts, name: info.Name, features: info.Features,
		pulls: fair.New(fair.Options{Name: "pulls of images", Total: maxPulls, RetryAfter: 10 * time.Second}),
	}
}

// Pulls returns the pool of pulls in progress.
func (s *Images) Pulls() *fair.Pool { return s.pulls }
