package gvisor_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// takeFiles takes a snapshot without memory.
func takeFiles(t *testing.T, b *drivertest.Box) (string, driver.Snapshot) {
	t.Helper()
	id := sandbox.DriverSnapshot(sandbox.NewSnapshotID())
	taken, err := driver.TakeDiskSnapshot(t.Context(), b.Box, id)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, sandbox.HintOf(err))
	}
	return id, taken
}

// TestFilesOfImage shows that a box of a snapshot without memory has the files of the
// other, also where that changed and removed files of the image.
func TestFilesOfImage(t *testing.T) {
	ref := changeableImage(t)
	d := openImages(t, t.TempDir())
	box := launchImage(t, d, ref)
	box.MustRoot(t, changeTree)
	want := box.MustRoot(t, listTree)
	id, taken := takeFiles(t, box)
	if taken.Bytes > 100_000 {
		t.Errorf("a snapshot of few changes has %d bytes", taken.Bytes)
	}
	spec := harness.Spec()
	spec.Image = ref
	made, err := d.CreateFrom(t.Context(), spec, id)
	if err != nil {
		t.Fatal(err)
	}
	fork := drivertest.NewBox(t, made)
	got := fork.MustRoot(t, listTree)
	if d := cmp.Diff(withoutFile(want, "./etc/hosts"), withoutFile(got, "./etc/hosts")); d != "" {
		t.Errorf("files of the other box, -want +got\n%s", d)
	}
	other := harness.Spec() // of another image
	if _, err := d.CreateFrom(t.Context(), other, id); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("a box of another image: %v, want unavailable, with a hint", err)
	}
	if err := fork.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestFilesEncrypted makes a box from encrypted files, and fails to with another key, none,
// and damaged files.
func TestFilesEncrypted(t *testing.T) {
	open(t) // skips without the program
	dir := t.TempDir()
	key := sealed.Key(bytes.Repeat([]byte{3}, sealed.KeySize))
	d := openSealing(t, dir, key, true)
	b := drivertest.Launch(t, d, harness.Spec())
	b.MustSh(t, "head -c 300000 /dev/urandom > /tmp/large; printf '%s-%s' a-private text-of-the-sandbox > /tmp/secret")
	id, _ := takeFiles(t, b)
	if found := inClear(t, filepath.Join(dir, "gvisor", "snapshots"), "a-private-text-of-the-sandbox"); len(found) > 0 {
		t.Errorf("in the clear: %v", found)
	}
	made, err := d.CreateFrom(t.Context(), harness.Spec(), id)
	if err != nil {
		t.Fatal(err)
	}
	fork := drivertest.NewBox(t, made)
	if got := fork.MustSh(t, "cat /tmp/secret"); got != "a-private-text-of-the-sandbox" {
		t.Errorf("the fork has %q", got)
	}
	if err := fork.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, key sealed.Key) {
		t.Helper()
		d := openSealing(t, dir, key, false)
		spec := harness.Spec()
		if _, err := d.CreateFrom(t.Context(), spec, id); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v, want unavailable, with a hint", what, err)
		}
		if refs, err := d.List(t.Context()); err != nil || len(refs) != 1 {
			t.Errorf("%s: the boxes are %v, %v; want the first", what, refs, err)
		}
	}
	refused("no key", nil)
	refused("another key", bytes.Repeat([]byte{4}, sealed.KeySize))
	archive := filepath.Join(dir, "gvisor", "snapshots", id, "files.tar.zst")
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(archive, content, 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a changed byte", key)
	if err := os.WriteFile(archive, content[:len(content)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	refused("a byte less", key)
	if err := os.Remove(filepath.Join(filepath.Dir(archive), "files.json")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.CreateFrom(t.Context(), harness.Spec(), id); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("an incomplete snapshot: %v, want not found", err)
	}
}
