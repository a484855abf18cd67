package builds

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// build writes the executables of a build.
func build(t *testing.T, program, guest string) (ID, string, string) {
	t.Helper()
	dir := t.TempDir()
	sum := func(name, text string) (string, string) {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
		h := sha256.Sum256([]byte(text))
		return hex.EncodeToString(h[:]), path
	}
	var id ID
	var p, g string
	id.Program, p = sum("p", program)
	id.Guest, g = sum("g", guest)
	return id, p, g
}

// TestBuilds keeps two builds, finds them after their files were replaced, and removes
// the one that no state needs.
func TestBuilds(t *testing.T) {
	s := Set{filepath.Join(t.TempDir(), "builds")}
	if err := s.Sweep(nil); err != nil {
		t.Errorf("sweep of nothing: %v", err)
	}
	old, p, g := build(t, "old program", "old guest")
	saved, err := s.Keep(old, p, g)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte("an update"), 0o755); err != nil {
		t.Fatal(err)
	}
	one, p, _ := build(t, "both", "both")
	done, err := s.Keep(one, p, "/none")
	if err != nil {
		t.Fatal(err)
	}
	done()
	none := func() (map[ID]bool, error) { return map[ID]bool{}, nil }
	if err := s.Sweep(none); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[ID]string{old: "old program", one: "both"} { // a state is being saved
		program, guest, err := s.Find(id)
		if err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(program); err != nil || string(text) != want {
			t.Errorf("kept %q, %v", text, err)
		}
		for _, path := range []string{program, guest} {
			if fi, err := os.Stat(path); err != nil || fi.Mode() != 0o555 {
				t.Errorf("%s: %v, %v", path, fi.Mode(), err)
			}
		}
		if fi, err := os.Stat(filepath.Dir(program)); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("directory: %v, %v", fi.Mode(), err)
		}
	}
	saved()
	if held, err := s.Hold("/elsewhere/guest"); held != nil || err != nil {
		t.Errorf("a guest that is not of the set holds it: %v, %v", held, err)
	}
	_, guest, err := s.Find(one)
	if err != nil {
		t.Fatal(err)
	}
	held, err := s.Hold(guest)
	if err != nil || held == nil {
		t.Fatal(held, err)
	}
	if err := s.Sweep(none); err != nil {
		t.Fatal(err)
	}
	if list, err := s.List(); err != nil || len(list) != 2 {
		t.Errorf("in use, left are %v, %v", list, err)
	}
	held.Close()
	if err := os.Mkdir(filepath.Join(s.Dir, newPrefix+"x"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.Sweep(func() (map[ID]bool, error) { return map[ID]bool{old: true}, nil }); err != nil {
		t.Fatal(err)
	}
	list, err := s.List()
	if diff := cmp.Diff([]driver.Build{{Hash: old.Program, Bytes: 20}}, list); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	if entries, err := os.ReadDir(s.Dir); err != nil || len(entries) != 2 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if _, _, err := s.Find(one); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		t.Errorf("a build that was removed: %v", err)
	}
}

// TestDamagedBuild: executables that are not what their name says are neither kept nor
// used.
func TestDamagedBuild(t *testing.T) {
	s := Set{t.TempDir()}
	id, p, g := build(t, "program", "guest")
	other := id
	other.Guest = id.Program
	other.Program = id.Guest
	if _, err := s.Keep(other, p, g); err == nil {
		t.Error("an executable was kept under another's hash")
	}
	if list, err := s.List(); err != nil || len(list) > 0 {
		t.Errorf("left are %v, %v", list, err)
	}
	done, err := s.Keep(id, p, g)
	if err != nil {
		t.Fatal(err)
	}
	done()
	program, _, err := s.Find(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("prograM"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Find(id); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("a damaged build: %v", err)
	}
}

// TestKeepAtOnce keeps one build by several saves at the same time, on a disk that has
// no room for two copies.
func TestKeepAtOnce(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount a small disk")
	}
	const size = 8 << 20
	disk := t.TempDir()
	if err := unix.Mount("builds", disk, "tmpfs", 0, fmt.Sprintf("size=%d", size*3/2)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	s := Set{filepath.Join(disk, "builds")}
	id, p, g := build(t, strings.Repeat("program ", size/8), "guest")
	var saves sync.WaitGroup
	for range 4 {
		saves.Go(func() {
			done, err := s.Keep(id, p, g)
			if err != nil {
				t.Error(err)
				return
			}
			done()
		})
	}
	saves.Wait()
	if _, _, err := s.Find(id); err != nil {
		t.Error(err)
	}
}
