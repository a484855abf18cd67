package snapshots

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var testManifest = Manifest{Image: "sha256:1", Workspace: true, Disk: container.DiskMemory}

func TestPackOrder(t *testing.T) {
	p := &container.Plan{
		Scratch: []container.Scratch{{Path: "/run"}, {Path: "/tmp"}}, ImageVolumes: []container.Scratch{{Path: "/vol"}},
		Mounts: []driver.Mount{{Path: "/data"}}, Settings: map[string]string{"/etc/passwd": "passwd"},
	}
	got, err := packOrder(p, []change{
		{path: "/opt/x"}, {path: "/opt"}, {path: "/data/mine"}, {path: "/database"}, {path: "/run/x"}, {path: "/tmp/x"}, {path: "/etc/passwd"},
		{path: "/etc/passwd-"}, {path: "/gone", gone: true}, {path: "/vol/gone", gone: true}, {path: "/"}, {path: container.GuestDir}, {path: "/dev/x"},
	})
	want := guestapi.PackOrder{Trees: []string{"/tmp", "/vol"}, Files: []string{"/database", "/etc/passwd-", "/opt", "/opt/x"}, Gone: []string{"/gone"}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v, -want +got:\n%s", err, d)
	}
	if _, err := packOrder(p, []change{{path: "/opt/bad\uFFFD"}}); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("a name that the engine cannot list: %v", err)
	}
}

func TestManifestFits(t *testing.T) {
	with, without := &driver.Spec{Workspace: "/w"}, &driver.Spec{}
	if err := testManifest.CheckFits(with, "sha256:1"); err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"another image": testManifest.CheckFits(with, "sha256:2"),
		"no workspace":  testManifest.CheckFits(without, "sha256:1"),
	} {
		if sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v, want unavailable with a hint", what, err)
		}
	}
}
