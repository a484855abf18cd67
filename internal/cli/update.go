package cli

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/update"
)

// releaseKeys are the public keys of releases, separated by commas. The linker
// sets it in releases; it is empty in other builds.
var releaseKeys string

func (p *program) updateCommand() *cobra.Command {
	var check, force bool
	cmd := &cobra.Command{
		Use:   "update",
		Short: "Update this program to the newest release",
		Long: `Update this program to the newest release. Update fetches the release and checks
its signature with a key of this program. It replaces this program only if the new
one starts. Running servers use the new program after their next restart.

An announcement of a release expires after half a year, so an attacker cannot hide
newer releases behind an old announcement. Update refuses a program that a package
manager installed.

Glovebox never updates itself without this command. On a terminal, other commands
say once a day if there is a newer release. To turn that off, set update.notice in
the configuration, or GLOVEBOX_UPDATE_NOTICE=false.`,
		Example: `  glovebox update --check
  glovebox update
  sudo glovebox update`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := p.load()
			if err != nil {
				return err
			}
			u, err := newUpdater(c)
			if err != nil {
				return err
			}
			var status update.Status
			if check {
				status, err = u.Check(cmd.Context())
			} else {
				status, err = u.Update(cmd.Context(), force)
			}
			switch {
			case err != nil:
				return err
			case p.flags.json:
				return p.PrintJSON(status)
			case status.Current == status.Latest:
				p.Say("%s is the newest release", status.Current)
			case check && status.Newer:
				p.Say("%s is available; this is %s; install it with glovebox update", status.Latest, status.Current)
			case check:
				p.Say("the newest release, %s, is older than this program, %s", status.Latest, status.Current)
			default:
				p.Say("updated from %s to %s", status.Current, status.Latest)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "only check for a newer release")
	cmd.Flags().BoolVar(&force, "force", false, "also install an older release or one whose announcement has expired, and replace a development build")
	p.addJSON(cmd)
	return cmd
}

func newUpdater(c config.Config) (*update.Updater, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "find this program: %w", err)
	}
	return &update.Updater{
		Current: Version(), Path: path, OS: runtime.GOOS, Arch: runtime.GOARCH,
		Keys: strings.FieldsFunc(releaseKeys, func(r rune) bool { return r == ',' }),
		URL:  c.Update.URL, StateDir: c.StateDir, Version: versionOf,
	}, nil
}

// versionOf runs the program at path and returns its version.
func versionOf(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "version", "--json").Output()
	if err != nil {
		return "", err
	}
	var info struct{ Version string }
	if err := json.Unmarshal(out, &info); err != nil {
		return "", err
	}
	return info.Version, nil
}

// Limits of the automatic search for releases.
const (
	noticeEvery = 24 * time.Hour
	noticeTime  = 3 * time.Second
)

// lookForUpdate looks for a newer release in the background, once a day and only
// if standard error is a terminal. The returned function prints the result, if
// it is known by then. It never waits and never fails.
func (p *program) lookForUpdate(ctx context.Context, args []string) (say func()) {
	quiet := func() {}
	_, isTerminal := console.Terminal(p.Err)
	if !isTerminal || releaseKeys == "" || !semver.IsValid(Version()) ||
		len(args) == 0 || slices.Contains([]string{"mcp", "serve", "update", "version", "help"}, args[0]) {
		return quiet
	}
	c, err := p.load()
	if err != nil || !c.Update.Notice {
		return quiet
	}
	u, err := newUpdater(c)
	if err != nil {
		return quiet
	}
	if _, ok := u.CheckedWithin(noticeEvery); ok {
		return quiet
	}
	ctx, cancel := context.WithTimeout(ctx, noticeTime)
	found := make(chan string, 1)
	go func() {
		status, err := u.Check(ctx)
		switch {
		case errors.Is(err, update.ErrExpired):
			found <- err.Error() + "; see glovebox update --check"
		case err == nil && status.Newer:
			found <- "glovebox " + status.Latest + " is available; install it with glovebox update"
		}
	}()
	return func() {
		cancel()
		select {
		case line := <-found:
			p.Say("%s", p.Painter(p.Err)(console.Faint)(line))
		default:
		}
	}
}
