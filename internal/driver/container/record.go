package container

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container/lease"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A DiskMode is a way to bound the data that a box writes.
type DiskMode string

const (
	// DiskQuota means that the platform bounds the container's own layer.
	DiskQuota DiskMode = "quota"
	// DiskMemory means that the container's root is read-only; writable directories
	// are in memory.
	DiskMemory DiskMode = "memory"
	// DiskUnbounded means that the container's own layer is not bounded, as the
	// operator allowed.
	DiskUnbounded DiskMode = "unbounded"
)

// A Record is the stored description of a box, in a label of its container.
type Record struct {
	Spec driver.Spec `json:"spec"`
	Disk DiskMode    `json:"disk"`
	// OneUser means that the guest and all programs are the same user, which is not
	// root, and has no capabilities.
	OneUser bool `json:"oneUser,omitempty"`
	// Workspaces is the volume that a server of workspaces serves; empty for a box.
	Workspaces string `json:"keeper,omitempty"`
	// Lease is nil for an attached box, and for a box of an earlier program.
	Lease *lease.Grant `json:"lease,omitempty"`
}

func (r *Record) encode() (string, error) {
	text, err := json.Marshal(r)
	return string(text), err
}

// DecodeRecord returns the record in the labels of a container. The error wraps
// [driver.ErrGone].
func DecodeRecord(labels map[string]string) (*Record, error) {
	var r Record
	if err := json.Unmarshal([]byte(labels[LabelRecord]), &r); err != nil {
		return nil, fmt.Errorf("%w: its label %s is not one of ours: %w", driver.ErrGone, LabelRecord, err)
	}
	if r.Lease != nil && r.Lease.Hold < time.Second {
		r.Lease = nil // no process of ours wrote that
	}
	return &r, nil
}

// labels returns the labels of a box's container.
func (s *StateDir) labels(rec *Record) (map[string]string, error) {
	id, err := s.ID()
	if err != nil {
		return nil, err
	}
	text, err := rec.encode()
	if err != nil {
		return nil, err
	}
	holder := "owner"
	if rec.Spec.Detached {
		holder = "server"
	}
	hostname, _ := os.Hostname()
	return map[string]string{
		LabelState:   id,
		LabelSandbox: rec.Spec.ID,
		LabelRecord:  text,
		LabelOwner:   fmt.Sprintf("%s:%d", hostname, os.Getpid()),
		LabelLease:   holder,
	}, nil
}

// linked reports whether the box was made with a network.
func (r *Record) linked() bool { return r.Spec.Network != sandbox.NetworkNone }

// MayLack reports whether a box may do without the enforcement of a control.
func MayLack(spec *driver.Spec, name sandbox.ControlName) bool {
	return slices.Contains(spec.AllowUnenforced, name)
}
