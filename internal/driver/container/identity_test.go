package container

import (
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestStoredNames checks the names of stored data: boxes and volumes of earlier
// versions have them.
func TestStoredNames(t *testing.T) {
	root := t.TempDir()
	s := NewStateDir(root, "docker")
	id, err := s.ID()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := NewStateDir(root, "docker").ID(); err != nil || again != id {
		t.Errorf("the identity is %q, then %q, %v", id, again, err)
	}
	if other, err := NewStateDir(root, "podman").ID(); err != nil || other == id {
		t.Errorf("two drivers have the identity %q, %v", id, err)
	}
	workspaces, err := s.WorkspacesVolume()
	if err != nil {
		t.Fatal(err)
	}
	guest, size, err := GuestVolume(strings.NewReader("program"))
	if err != nil || size != 7 {
		t.Fatal(size, err)
	}
	for got, want := range map[string]string{
		workspaces: "glovebox-workspaces-" + id,
		guest:      "glovebox-guest-1310ca2c8932dbd1",
		SettingsVolume("sha256:0123456789abcdef0123"): "glovebox-settings-0123456789abcdef",
		TunnelName("sbx_a"):                           "sbx_a-network",
	} {
		if got != want {
			t.Errorf("got the name %q, want %q", got, want)
		}
	}
	for volume, want := range map[string]bool{guest: true, "glovebox-settings-x": true, workspaces: false, "other": false} {
		if got := IsShared(volume); got != want {
			t.Errorf("IsShared(%q) is %t, want %t", volume, got, want)
		}
	}
}

func TestRecordLabels(t *testing.T) {
	s := NewStateDir(t.TempDir(), "docker")
	id, err := s.ID()
	if err != nil {
		t.Fatal(err)
	}
	rec := &Record{Disk: DiskMemory, Spec: driver.Spec{ID: sandbox.NewID(), Image: "image", Network: sandbox.NetworkNone}}
	plan, err := NewPlan(s, rec, Abilities{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	l := plan.Labels
	if l["glovebox.state"] != id || l["glovebox.sandbox"] != rec.Spec.ID || l["glovebox.lease"] != "owner" {
		t.Errorf("a box has the labels %v", l)
	}
	if ours, err := s.Owns(l, rec.Spec.ID); err != nil || !ours {
		t.Errorf("Owns: %t, %v", ours, err)
	}
	if ours, err := NewStateDir(t.TempDir(), "docker").Owns(l, rec.Spec.ID); err != nil || ours {
		t.Errorf("another state directory's Owns: %t, %v", ours, err)
	}
	got, err := DecodeRecord(l)
	if err != nil || got.Spec.ID != rec.Spec.ID || got.Disk != rec.Disk {
		t.Errorf("DecodeRecord: %+v, %v", got, err)
	}
	if _, err := DecodeRecord(map[string]string{"glovebox.spec": "{"}); !driver.IsGone(err) {
		t.Errorf("DecodeRecord of another program's label: %v", err)
	}
	server, err := NewPlan(s, ServerRecord("volume", "image"), Abilities{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if l := server.Labels; l["glovebox.sandbox"] != "" || l["glovebox.role"] != "workspaces" || !strings.Contains(l["glovebox.spec"], `"keeper":"volume"`) {
		t.Errorf("a server of workspaces has the labels %v", l)
	}
}
