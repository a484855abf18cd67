package docker_test

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// workspaces has the engine keep workspaces in a volume of its own, as one does
// that has no directory of this machine.
func (f *faults) workspaces(t *testing.T) {
	open := func() (*docker.Driver, *workspace.Remote) {
		d, err := docker.New(docker.Options{
			Engine: f.engine, Host: "unix://" + f.socket, StateDir: t.TempDir(), Guest: os.Getenv(guestEnv), Workspaces: docker.WorkspacesVolume,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		dir, ok := d.KeepsWorkspaces()
		if !ok {
			t.Fatal("it keeps no workspaces")
		}
		r, err := workspace.OpenRemote(workspace.RemoteOptions{Secrets: t.TempDir(), Dir: dir, Dial: d.DialWorkspaces})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close() })
		return d, r
	}
	c := f.client(t)
	volumes := func() map[string]bool {
		list, err := c.VolumeList(t.Context(), client.VolumeListOptions{Filters: make(client.Filters).Add("name", "glovebox-workspaces-")})
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, v := range list.Items {
			names[v.Name] = true
		}
		return names
	}
	keepers := func() []string {
		list, err := c.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: make(client.Filters).Add("label", "glovebox.role=workspaces")})
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, k := range list.Items {
			ids = append(ids, k.ID)
		}
		return ids
	}
	before := volumes()
	d, r := open()
	id := workspace.NewID()
	if _, err := r.Make(id); err != nil {
		t.Fatal(err)
	}
	w, err := r.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name, want string) {
		t.Helper()
		file, err := w.Read(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if got, err := io.ReadAll(file); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, want)
		}
	}
	if _, err := w.Write(t.Context(), "in", strings.NewReader("from outside")); err != nil {
		t.Fatal(err)
	}
	spec := f.spec()
	spec.Workspace = r.Path(id)
	b := drivertest.Launch(t, d, spec)
	if out := b.MustSh(t, "cat in; stat -c ' %U' in . | tr -d '\\n'; printf inside > out"); out != "from outside user user" {
		t.Errorf("in the box: %q", out)
	}
	read("out", "inside")
	other := f.spec()
	other.Workspace = r.Path(id)
	if out := drivertest.Launch(t, d, other).MustSh(t, "cat out"); out != "inside" {
		t.Errorf("in another box: %q", out)
	}
	if refs, err := d.List(t.Context()); err != nil || len(refs) != 2 {
		t.Errorf("List with two boxes and a keeper: %q, %v", refs, err)
	}
	for _, dir := range []string{r.Path(id) + "/../x", r.Path(id) + "/x", "/.glovebox-workspaces/.."} {
		bad := f.spec()
		bad.Workspace = dir
		if _, err := d.Create(t.Context(), bad); err == nil {
			t.Errorf("a box has the workspace %s", dir)
		}
	}

	// Without its keeper, another is made.
	for _, k := range keepers() {
		if _, err := c.ContainerRemove(t.Context(), k, client.ContainerRemoveOptions{Force: true}); err != nil {
			t.Logf("remove a keeper: %v", err)
		}
	}
	read("out", "inside")
	if _, _, err := d.PruneImages(t.Context(), 0, false); err != nil {
		t.Error(err)
	}
	read("in", "from outside")

	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if left := keepers(); len(left) > 0 {
		t.Errorf("keepers are left: %q", left)
	}
	for name := range volumes() {
		if !before[name] {
			t.Cleanup(func() {
				if _, err := c.VolumeRemove(context.Background(), name, client.VolumeRemoveOptions{Force: true}); err != nil {
					t.Logf("remove volume: %v", err)
				}
			})
		}
	}
}
