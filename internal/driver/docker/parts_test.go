package docker

import (
	"errors"
	"strings"
	"testing"
	"time"

	api "github.com/moby/moby/api/types/container"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestNotThere(t *testing.T) {
	d, err := New(Options{Engine: Docker, Host: "unix:///nowhere/docker.sock", StateDir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(sandbox.HintOf(err), "start") {
		t.Errorf("Probe without an engine: %v (hint %q)", err, sandbox.HintOf(err))
	}
	checks := Doctor(t.Context(), Options{Engine: Docker, Host: "unix:///nowhere/docker.sock"})
	if len(checks) != 1 || !checks[0].Fatal || checks[0].Fix == "" {
		t.Errorf("Doctor without an engine: %+v", checks)
	}
}

func TestKeepsWorkspaces(t *testing.T) {
	for _, test := range []struct {
		opts Options
		want bool
	}{
		{Options{Host: "unix:///run/docker.sock"}, false},
		{Options{Host: "tcp://far:2376"}, true},
		{Options{Host: "https://far"}, true},
		{Options{Host: "tcp://engine:2375", Inside: "/in", Outside: "/out"}, false},
		{Options{Host: "tcp://near:2375", Workspaces: WorkspacesDirectory}, false},
		{Options{Host: "unix:///run/docker.sock", Workspaces: WorkspacesVolume}, true},
		{Options{}, false},
	} {
		test.opts.Engine, test.opts.StateDir = Docker, t.TempDir()
		test.opts.Getenv = func(string) string { return "" }
		d, err := New(test.opts)
		if err != nil {
			t.Fatal(err)
		}
		if dir, ok := d.KeepsWorkspaces(); ok != test.want || dir != container.WorkspacesDir && ok {
			t.Errorf("%+v: %q, %v, want %v", test.opts, dir, ok, test.want)
		}
	}
}

func TestIsLeftover(t *testing.T) {
	now := time.Now()
	old, recent := now.Add(-time.Hour).Unix(), now.Add(-time.Minute).Unix()
	box := func(state string) map[string]string { return map[string]string{container.LabelState: state} }
	for _, test := range []struct {
		name string
		c    api.Summary
		want bool
	}{
		{"another directory's, ended", api.Summary{State: "exited", Created: old, Labels: box("other")}, true},
		{"the same in Podman's words", api.Summary{State: "stopped", Created: old, Labels: box("other")}, true},
		{"another directory's, running", api.Summary{State: "running", Created: old, Labels: box("other")}, false},
		{"another directory's, being made", api.Summary{State: "created", Created: recent, Labels: box("other")}, false},
		{"our own", api.Summary{State: "exited", Created: old, Labels: box("own")}, false},
		{"what filled a volume", api.Summary{State: "created", Created: old, Labels: map[string]string{container.LabelRole: container.RoleFiller}}, true},
		{"what fills a volume", api.Summary{State: "created", Created: recent, Labels: map[string]string{container.LabelRole: container.RoleFiller}}, false},
	} {
		if got := isLeftover(&test.c, "own", now); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestWorkspacesRuntime: what serves workspaces must not be on a kernel that follows
// links, as the one of a runtime for untrusted code may be.
func TestWorkspacesRuntime(t *testing.T) {
	for want, rec := range map[string]*container.Record{
		"":      container.ServerRecord("volume", "image"),
		"runsc": {Spec: driver.Spec{ID: sandbox.NewID()}},
	} {
		plan, err := container.NewPlan(container.NewStateDir(t.TempDir(), Docker), rec, container.Abilities{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		order := orderOf(&dockerapi.Engine{Name: Docker}, plan, materials{runtime: "runsc"})
		if got := order.HostConfig.Runtime; got != want {
			t.Errorf("container with the labels %v has the runtime %q, want %q", order.Config.Labels, got, want)
		}
	}
}
