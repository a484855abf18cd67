package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// withVolumes asks for a sandbox with a workspace and two volumes.
var withVolumes = sandbox.CreateRequest{Workspace: "w", Volumes: []sandbox.Volume{
	{Workspace: "v", Path: "/mnt/v"}, {Workspace: "r", Path: "/mnt/r", ReadOnly: true},
}}

// TestVolumes gives a sandbox several workspaces: the driver mounts them, and they
// are in use until the sandbox ends, for the next server, too.
func TestVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.spaces = newWorldSpaces()
		dir := t.TempDir()
		var mounts []driver.Mount
		w.creating = func(_ context.Context, spec *driver.Spec) error {
			mounts = spec.Mounts
			return nil
		}
		open := func() *Engine {
			return openWorld(t, w, dir, func(o *Options) { o.Workspaces, o.Detached = w.spaces, true })
		}
		e := open()
		s := e.mustCreate(t, withVolumes)
		want := []driver.Mount{{Path: "/mnt/v", Dir: "alice-v"}, {Path: "/mnt/r", Dir: "alice-r", ReadOnly: true}}
		if diff := cmp.Diff(want, mounts); diff != "" {
			t.Errorf("mounts, -want +got\n%s", diff)
		}
		inUse := func(e *Engine, want bool) {
			t.Helper()
			for _, name := range []string{"w", "v", "r"} {
				err := e.DeleteWorkspace(t.Context(), alice, name)
				if used := errors.Is(err, sandbox.Conflict); used != want {
					t.Errorf("delete workspace %s: %v; in use: %t", name, err, want)
				}
			}
		}
		inUse(e, true)
		if err := e.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		e = open()
		inUse(e, true) // by its record
		got := e.mustGet(t, s.ID)
		if diff := cmp.Diff(withVolumes.Volumes, got.Volumes); diff != "" {
			t.Errorf("volumes of the record, -want +got\n%s", diff)
		}
		if _, _, err := e.ReadFile(t.Context(), alice, s.ID, "/mnt/v/none", 0, 0); !errors.Is(err, sandbox.NotFound) {
			t.Errorf("read a file that is not there: %v", err) // it takes the sandbox over
		}
		inUse(e, true)
		if err := e.Stop(t.Context(), alice, s.ID); err != nil {
			t.Fatal(err)
		}
		inUse(e, false)
	})
}

// TestVolumeQuota fills a volume by each way in.
func TestVolumeQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, withVolumes)
		err := e.WriteFile(t.Context(), alice, s.ID, "/mnt/v/big", io.LimitReader(endless{}, 40*mib), false)
		if !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("write file: %v, want exhausted", err)
		}
		time.Sleep(time.Minute) // until it was counted
		w.spaces.space("alice-v").grow(-1000 * mib)
		time.Sleep(time.Minute)
		resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, upload(t.Context(), "/mnt/v/big", 200*mib))
		if !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("upload: %v, want exhausted", err)
		}
		if err == nil {
			resp.Body.Close()
		}
		if got := w.spaces.space("alice-w").bytes; got != 0 {
			t.Errorf("the workspace holds %d bytes", got)
		}
		w.spaces.space("alice-v").grow(-1000 * mib)
		time.Sleep(time.Minute)
		r, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"fill", "1000000000", "/mnt/v"}, Timeout: 5 * time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		r = e.mustWait(t, r.ID)
		if r.Verdict.Code != sandbox.DiskFull || !strings.Contains(r.Verdict.Cause, "may hold 32 MiB") {
			t.Errorf("a run that filled the volume: %+v", r.Verdict)
		}
		if got := w.spaces.total(); got > 200*mib {
			t.Errorf("the volume holds %s", sandbox.FormatBytes(got))
		}
	})
}

// TestBadVolumes: a request names what is wrong with its volumes.
func TestBadVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		for _, c := range []struct {
			volumes []sandbox.Volume
			want    string
		}{
			{[]sandbox.Volume{{Workspace: "v", Path: "mnt"}}, "not an absolute path"},
			{[]sandbox.Volume{{Workspace: "v", Path: "/mnt/"}}, "slash at its end"},
			{[]sandbox.Volume{{Workspace: "v", Path: "/usr"}}, "of the system"},
			{[]sandbox.Volume{{Workspace: "v", Path: "/data/x"}}, "in use already"},
			{[]sandbox.Volume{{Workspace: "v", Path: "/proc/x"}}, "in use already"},
			{[]sandbox.Volume{{Workspace: "v", Path: "/a"}, {Workspace: "x", Path: "/a/b"}}, "one in the other"},
			{[]sandbox.Volume{{Path: "/a"}}, "workspace"},
			{make([]sandbox.Volume, 9), "more than 8"},
		} {
			_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Workspace: "w", Volumes: c.volumes})
			if !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%+v: %v, want invalid with %q", c.volumes, err, c.want)
			}
		}
		_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Volumes: withVolumes.Volumes})
		if !errors.Is(err, sandbox.Invalid) {
			t.Errorf("volumes without a workspace: %v", err)
		}
		if w.made != 0 {
			t.Errorf("%d boxes were made", w.made)
		}
	})
}
