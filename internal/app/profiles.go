package app

import (
	"context"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/hostfiles"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/automata"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/coderunner"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/e2b"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile/interpreter"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A profileMaker makes a profile.
type profileMaker struct {
	name string
	new  func(*System, profile.Options) profile.Profile
}

// profiles returns the makers of all profiles, in the documentation's order.
func profiles() []profileMaker {
	return []profileMaker{
		{automata.Name, func(s *System, o profile.Options) profile.Profile {
			a := automata.Options{Options: o, Engine: s.Engine}
			if s.host != nil {
				a.Host = automataHost{s.host}
			}
			return automata.New(a)
		}},
		{interpreter.Name, func(_ *System, o profile.Options) profile.Profile { return interpreter.New(o) }},
		{coderunner.Name, func(s *System, o profile.Options) profile.Profile {
			ctx, cancel := context.WithTimeout(context.Background(), lookTimeout)
			defer cancel()
			return coderunner.New(coderunner.Options{Options: o, Engine: s.Engine, Languages: s.languages(ctx)})
		}},
		{e2b.Name, func(s *System, o profile.Options) profile.Profile {
			return e2b.New(e2b.Options{Options: o, Engine: s.Engine})
		}},
	}
}

// lookTimeout is the timeout of a search for images that run a language.
const lookTimeout = 5 * time.Second

// InterpreterTypes returns the names of all drivers of this build, sorted.
func InterpreterTypes() []string { return slices.Sorted(maps.Keys(makers())) }

// ProfileNames returns the names of all profiles, the native one first.
func ProfileNames() []string {
	names := []string{mcpserver.NativeProfile}
	for _, p := range profiles() {
		names = append(names, p.name)
	}
	return names
}

// profile returns the profile of that name; nil is the native profile.
func (s *System) profile(name string) (*profile.Profile, error) {
	if name == mcpserver.NativeProfile {
		return nil, nil
	}
	for _, m := range profiles() {
		if m.name == name {
			p := m.new(s, s.profileOptions())
			return &p, nil
		}
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "mcp.profile: there is no profile %q", name),
		"the profiles are %s", strings.Join(ProfileNames(), ", "))
}

func (s *System) profileOptions() profile.Options {
	c := s.opts.Config
	o := profile.Options{
		Engine:     s.Engine,
		Log:        s.log,
		Driver:     s.DriverName(),
		Detached:   s.opts.Detached,
		RunTimeout: c.Run.Unattended(),
	}
	if !s.opts.Detached {
		// Sandboxes end with the client. Until then, no other client needs their
		// resources.
		o.Idle = time.Duration(c.Sandbox.Default.Lifetime)
		if most := time.Duration(c.Sandbox.Maximum.Idle); most > 0 {
			o.Idle = min(o.Idle, most)
		}
	}
	return o
}

// automataHost adapts the allowed directories for the profile automata.
type automataHost struct{ *hostfiles.Directories }

func (h automataHost) Walk(ctx context.Context, path string, visit func(string, bool, io.Reader) error) (int, error) {
	return h.Directories.Walk(ctx, path, func(f hostfiles.File) error { return visit(f.Name, f.Executable, f.Content) })
}

// codeRunnerPaths returns the URL paths of the profile code-runner.
func (s *System) codeRunnerPaths() []string {
	paths := []string{transport.StreamablePath + "/" + coderunner.Name}
	if s.opts.Config.MCP.Profile == coderunner.Name {
		paths = append(paths, transport.StreamablePath)
	}
	return paths
}
