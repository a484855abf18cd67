package snapshots

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Record is what the state directory has of a snapshot at E2B.
type Record struct {
	// Image and Limits are those of the box that the snapshot is of.
	Image  string         `json:"image"`
	Limits sandbox.Limits `json:"limits"`
	// Contexts are the names of the box's contexts.
	Contexts []Context `json:"contexts,omitempty"`
	// Template is E2B's identifier of the snapshot. It is "" until E2B has answered.
	Template string `json:"template,omitempty"`
	// Removed is true for a snapshot that E2B is still to delete.
	Removed bool      `json:"removed,omitempty"`
	Changed time.Time `json:"changed"` // when E2B was asked for it
}

// A Context is a context of E2B's code interpreter.
type Context struct {
	Name     string `json:"name"` // the host's
	ID       string `json:"id"`   // E2B's identifier
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

// Fits returns an error of kind Unavailable if a box of that image and those limits cannot
// be made of the snapshot. Memory is the template's, and times are the box's.
func (r *Record) Fits(image string, limits sandbox.Limits) error {
	differs := ""
	switch had := r.Limits; {
	case r.Image != image:
		differs = "image"
	case had.CPUs != limits.CPUs:
		differs = "limit of processors"
	case had.Processes != limits.Processes:
		differs = "limit of processes"
	case had.DiskBytes != limits.DiskBytes:
		differs = "limit of the disk"
	default:
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the snapshot does not fit: its sandbox had another %s", differs),
		"use the image and the limits that the snapshot was taken with")
}

// records are the records of a state directory, one file for each. Processes that share
// the directory use different snapshots.
type records struct {
	dir string
	mu  sync.Mutex
}

const (
	recordSuffix = ".json"
	maxRecord    = 2 << 20
)

func (r *records) file(id string) string { return filepath.Join(r.dir, id+recordSuffix) }

// add writes the first record of a snapshot. The error is of kind Conflict if there is
// one.
func (r *records) add(id string, rec Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := os.Stat(r.file(id)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, sandbox.Errorf(sandbox.Conflict, "there is a snapshot %s", id))
	}
	return r.write(id, rec)
}

func (r *records) put(id string, rec Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.write(id, rec)
}

func (r *records) write(id string, rec Record) error {
	text, err := json.Marshal(rec)
	if err == nil {
		err = os.MkdirAll(r.dir, 0o700)
	}
	if err == nil {
		err = atomicfile.ReplaceDurably(r.file(id), text, 0o600)
	}
	if err == nil {
		err = syncDir(r.dir) // else a loss of power could lose the name of the file
	}
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "write the record of a snapshot: %w", err)
	}
	return nil
}

// get returns the record of a snapshot, or nil if there is none.
func (r *records) get(id string) (*Record, error) {
	if !sandbox.ValidID(id) {
		return nil, nil
	}
	var rec Record
	text, err := os.ReadFile(r.file(id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err == nil && len(text) > maxRecord {
		err = fmt.Errorf("it has %d bytes", len(text))
	}
	if err == nil {
		err = json.Unmarshal(text, &rec)
	}
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "read the record of snapshot %s: %w", id, err)
	}
	return &rec, nil
}

// all returns all records by the identifiers of their snapshots.
func (r *records) all() (map[string]*Record, error) {
	entries, err := os.ReadDir(r.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.Errorf(sandbox.Unavailable, "list the records of snapshots: %w", err)
	}
	all := map[string]*Record{}
	for _, e := range entries {
		id, _ := strings.CutSuffix(e.Name(), recordSuffix)
		rec, err := r.get(id)
		if err != nil {
			return nil, err
		}
		if rec != nil {
			all[id] = rec
		}
	}
	return all, nil
}

// drop removes the record of a snapshot. A missing one is not an error.
func (r *records) drop(id string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Remove(r.file(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.Unavailable, "remove the record of a snapshot: %w", err)
	}
	return nil
}
