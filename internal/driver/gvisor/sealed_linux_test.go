package gvisor_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
)

// openSealing returns a driver of a state directory with a key.
func openSealing(t *testing.T, dir string, key sealed.Key, encrypt bool) *gvisor.Driver {
	t.Helper()
	d, err := gvisor.New(gvisor.Options{StateDir: dir, Program: os.Getenv(programEnv), Guest: os.Getenv(guestEnv), StateKey: key, Encrypt: encrypt})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// inClear returns the files below a directory that have a text in the clear.
func inClear(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSaveEncrypted saves a box with a key. The disk has nothing of its memory and files
// in the clear, and only a driver with the key resumes it.
func TestSaveEncrypted(t *testing.T) {
	open(t) // skips without the program
	dir := t.TempDir()
	key, other := sealed.Key(bytes.Repeat([]byte{1}, sealed.KeySize)), sealed.Key(bytes.Repeat([]byte{2}, sealed.KeySize))
	plain := openSealing(t, dir, nil, false)
	spec := harness.Spec()
	spec.Detached = true
	made, err := plain.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	b := drivertest.NewBox(t, made)
	count := countIn(t, b)
	const secret = "a-private-text-of-the-sandbox"
	// The text is in pieces here, because the order of the box is on the disk.
	b.MustSh(t, "printf '%s-%s' a-private text-of-the-sandbox > /tmp/secret; cp /tmp/secret /dev/shm/secret")
	before := count()
	if _, err := driver.Save(t.Context(), b.Box); err != nil {
		t.Fatal(err)
	}
	if found := inClear(t, filepath.Join(dir, "gvisor", "boxes"), secret); len(found) == 0 {
		t.Error("the text is not in the state that is not encrypted, so the test shows nothing")
	}
	if err := plain.Close(); err != nil {
		t.Fatal(err)
	}
	attach := func(key sealed.Key, encrypt bool) (driver.Box, *gvisor.Driver) {
		t.Helper()
		d := openSealing(t, dir, key, encrypt)
		a, err := d.Attach(t.Context(), b.Ref())
		if err != nil {
			t.Fatal(err)
		}
		return a, d
	}
	// A state from before the encryption is resumed, and saved with it.
	a, d := attach(key, true)
	for range 2 {
		if err := driver.Resume(t.Context(), a); err != nil {
			t.Fatal(err)
		}
		saved, err := driver.Save(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		if on := sizeOfState(t, dir, b.Ref()); saved.Bytes != on {
			t.Errorf("the state has %d bytes; want the %d on the disk", saved.Bytes, on)
		}
		if found := inClear(t, filepath.Join(dir, "gvisor", "boxes"), secret); len(found) > 0 {
			t.Errorf("in the clear: %v", found)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for what, k := range map[string]sealed.Key{"no key": nil, "another key": other} {
		a, d := attach(k, false)
		if err := driver.Resume(t.Context(), a); sandbox.KindOf(err) != sandbox.Unavailable || driver.IsGone(err) || sandbox.HintOf(err) == "" {
			t.Errorf("resumed with %s: %v", what, err)
		}
		if pids := hostProcesses(t, dir, b.Ref()); len(pids) > 0 {
			t.Errorf("with %s are left the processes %v", what, pids)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	a, d = attach(key, false)
	pages := filepath.Join(stateOf(dir, b.Ref()), "pages.img")
	whole, err := os.ReadFile(pages)
	if err != nil {
		t.Fatal(err)
	}
	for what, data := range map[string][]byte{"a flipped bit": append(append([]byte{}, whole[:len(whole)-20]...), append([]byte{whole[len(whole)-20] ^ 1}, whole[len(whole)-19:]...)...), "the beginning": whole[:len(whole)/2]} {
		if err := os.WriteFile(pages, data, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := driver.Resume(t.Context(), a); sandbox.KindOf(err) != sandbox.Unavailable || driver.IsGone(err) {
			t.Errorf("resumed from %s: %v", what, err)
		}
	}
	if err := os.WriteFile(pages, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := driver.Resume(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	back := drivertest.NewBox(t, a)
	if got := back.MustSh(t, "cat /tmp/secret /dev/shm/secret"); got != secret+secret {
		t.Errorf("the files have %q", got)
	}
	if after, err := strconv.Atoi(strings.TrimSpace(back.MustSh(t, "cat /tmp/n"))); err != nil || after < before {
		t.Errorf("a program that had counted to %d has counted to %d, %v", before, after, err)
	}
	if err := back.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestSnapshotEncrypted makes a box from an encrypted snapshot, and rolls one back.
func TestSnapshotEncrypted(t *testing.T) {
	open(t) // skips without the program
	dir := t.TempDir()
	key := sealed.Key(bytes.Repeat([]byte{3}, sealed.KeySize))
	d := openSealing(t, dir, key, true)
	b := drivertest.Launch(t, d, harness.Spec())
	b.MustSh(t, "printf '%s-%s' a-private text-of-the-sandbox > /tmp/secret")
	s, ok := b.Box.(driver.Rollbacker)
	if !ok {
		t.Fatal("the box has no snapshots")
	}
	id := sandbox.DriverSnapshot(sandbox.NewSnapshotID())
	taken, err := s.Snapshot(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if taken.Bytes <= 0 {
		t.Errorf("the snapshot has %d bytes", taken.Bytes)
	}
	if found := inClear(t, filepath.Join(dir, "gvisor", "snapshots"), "a-private-text-of-the-sandbox"); len(found) > 0 {
		t.Errorf("in the clear: %v", found)
	}
	made, err := d.CreateFrom(t.Context(), harness.Spec(), id)
	if err != nil {
		t.Fatal(err)
	}
	fork := drivertest.NewBox(t, made)
	b.MustSh(t, "rm /tmp/secret")
	if err := s.Rollback(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	for what, box := range map[string]*drivertest.Box{"the fork": fork, "the box that was rolled back": b} {
		if got := box.MustSh(t, "cat /tmp/secret"); got != "a-private-text-of-the-sandbox" {
			t.Errorf("%s has %q", what, got)
		}
	}
	if err := fork.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
}
