package app

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// TestStateKey makes a key only if states are encrypted, and refuses drivers that cannot
// encrypt them.
func TestStateKey(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("states are encrypted on Linux only")
	}
	ctx, c, records := t.Context(), config.Config{StateDir: t.TempDir()}, openRecords(t)
	s := config.Saved{Key: filepath.Join(t.TempDir(), "key")}
	load := func(s config.Saved) (sealed.Key, error) {
		c.Saved = s
		return stateKey(ctx, c, records)
	}
	if key, err := load(s); err != nil || key != nil {
		t.Errorf("without encryption and without a file: %v, %v", key, err)
	}
	s.Encrypt = true
	made, err := load(s)
	if err != nil || made == nil {
		t.Fatalf("no key was made: %v", err)
	}
	s.Encrypt = false
	if key, err := load(s); err != nil || string(key) != string(made) {
		t.Errorf("the key is not used any more: %v", err)
	}
	if err := os.Chmod(s.Key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := load(s); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
		t.Errorf("a key that all may read: %v", err)
	}
	if err := checkEncrypts(s, "docker"); err != nil {
		t.Error(err)
	}
	s.Encrypt = true
	if err := checkEncrypts(s, "docker"); sandbox.KindOf(err) != sandbox.Invalid || sandbox.HintOf(err) == "" {
		t.Errorf("docker encrypts: %v", err)
	}
	if err := checkEncrypts(s, "gvisor"); err != nil {
		t.Error(err)
	}
}

// openRecords opens a store of its own.
func openRecords(t *testing.T) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestStateKeyIsLost: no other key takes the place of a lost or replaced one while there
// are saved states.
func TestStateKeyIsLost(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("states are encrypted on Linux only")
	}
	ctx, records := t.Context(), openRecords(t)
	c := config.Config{StateDir: t.TempDir(), Saved: config.Saved{Encrypt: true, Key: filepath.Join(t.TempDir(), "key")}}
	load := func() sealed.Key {
		t.Helper()
		key, err := stateKey(ctx, c, records)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	refused := func(text string) {
		t.Helper()
		key, err := stateKey(ctx, c, records)
		if sandbox.KindOf(err) != sandbox.Invalid || !strings.Contains(err.Error(), text) || !strings.Contains(sandbox.HintOf(err), keyIDFile) || key != nil {
			t.Errorf("%v, hint %q; want a refusal with %q", err, sandbox.HintOf(err), text)
		}
	}
	first := load()
	kept := c.Saved.Key + "-kept"
	if err := os.Rename(c.Saved.Key, kept); err != nil {
		t.Fatal(err)
	}
	second := load() // nothing is lost without a state
	if string(first) == string(second) {
		t.Error("the key is the lost one")
	}
	snapshot := store.Snapshot{
		Snapshot:  sandbox.Snapshot{ID: sandbox.NewSnapshotID(), State: sandbox.SnapshotMaking, Sandbox: sandbox.NewID(), Created: time.Now()},
		Principal: sandbox.Local, Owner: "me", Driver: "fake",
	}
	if err := records.AddSnapshot(ctx, &snapshot, 1, 1<<20); err != nil {
		t.Fatal(err)
	}
	load()
	if err := os.Rename(c.Saved.Key, c.Saved.Key+"-second"); err != nil {
		t.Fatal(err)
	}
	refused("there is no file")
	if _, err := os.Stat(c.Saved.Key); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refusal made a key: %v", err)
	}
	if err := os.Rename(kept, c.Saved.Key); err != nil {
		t.Fatal(err)
	}
	refused("is not the one of the states")
	if err := os.Rename(c.Saved.Key+"-second", c.Saved.Key); err != nil {
		t.Fatal(err)
	}
	if string(load()) != string(second) {
		t.Error("the key that was put back is not used")
	}
	if err := os.Remove(filepath.Join(c.StateDir, keyIDFile)); err != nil { // as the hint says
		t.Fatal(err)
	}
	load()
}
