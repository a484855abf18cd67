// Package sandbox defines the terms of Glovebox as types: a sandbox, a run, a
// limit, a verdict, a receipt and an error. It only validates and names its own
// values.
//
// Every other package may import it. It imports only the standard library. Its
// values are plain data that are safe to copy, and they hold no resource.
package sandbox

import (
	"time"
)

// A State is a sandbox's place in its life cycle. A sandbox starts, runs, may
// hibernate and wake any number of times, and stops once. It never leaves
// Stopped.
type State string

// The states of a sandbox.
const (
	Starting   State = "starting"
	Running    State = "running"
	Hibernated State = "hibernated"
	Stopped    State = "stopped"
)

// AtEnd says what happens to a sandbox at the end that its creator set.
type AtEnd string

// The values of AtEnd. The empty text means AtEndStop.
const (
	AtEndStop      AtEnd = "stop"
	AtEndHibernate AtEnd = "hibernate"
	// AtEndHibernateFiles is AtEndHibernate after a restart: the sandbox keeps its files,
	// and neither memory nor programs.
	AtEndHibernateFiles AtEnd = "hibernate-files"
)

// Hibernates reports whether the sandbox hibernates at its end.
func (a AtEnd) Hibernates() bool { return a == AtEndHibernate || a == AtEndHibernateFiles }

// ImageHost is the image that stands for this machine's own system
// directories, read-only, under a private writable layer.
const ImageHost = "host"

// ImageScratch is the empty image, on which other images are built.
const ImageScratch = "scratch"

// WorkDir is the directory in which a sandbox's programs start. A workspace is
// mounted there.
const WorkDir = "/data"

// The accounts that exist in every sandbox. Programs run as User unless the
// caller asks for root.
const (
	User    = "user"
	UserUID = 1000
	Root    = "root"
)

// A Sandbox describes one sandbox as its owner sees it.
type Sandbox struct {
	ID      string  `json:"sandbox_id"`
	Name    string  `json:"name,omitempty"`
	State   State   `json:"state"`
	Driver  string  `json:"driver"`
	Image   string  `json:"image"`
	Network Network `json:"network"`
	// Workspace is the name of the principal's workspace at [WorkDir]. If it is
	// "", the files there are removed with the sandbox.
	Workspace string `json:"workspace,omitempty"`
	// Volumes are further workspaces that the sandbox has.
	Volumes []Volume  `json:"volumes,omitempty"`
	Limits  Limits    `json:"limits"`
	Created time.Time `json:"created_at"`
	// Used is when the last run or file operation began or ended. The idle limit
	// counts from it.
	Used time.Time `json:"last_used_at"`
	// Ends is when the sandbox ends even if it is used, as its creator set it;
	// zero is never. It does not apply while the sandbox is hibernated.
	Ends time.Time `json:"ends_at,omitzero"`
	// AtEnd is what happens to the sandbox at Ends.
	AtEnd AtEnd `json:"at_end,omitempty"`
	// Restless keeps the sandbox's programs running while nothing uses it. Other
	// sandboxes rest then.
	Restless bool `json:"restless,omitempty"`
	// Labels are notes of the sandbox's creator.
	Labels map[string]string `json:"labels,omitempty"`
	// Hibernation is the saved state of the sandbox.
	Hibernation Hibernation `json:"hibernation,omitzero"`
	// Expires is when the sandbox stops if nothing uses it before. It is the
	// earliest of the idle limit, the lifetime limit, and an end at which the
	// sandbox stops. For a hibernated sandbox only the lifetime limit counts.
	Expires time.Time `json:"expires_at"`
	// Ended is when the sandbox stopped, and Cause says why. Both are empty
	// before.
	Ended time.Time `json:"ended_at,omitzero"`
	Cause string    `json:"cause,omitempty"`
	// Receipt says how each control is enforced.
	Receipt Receipt `json:"receipt"`
}

// ProgramDefaults are what a program gets if neither the request that starts it nor
// its sandbox sets it.
type ProgramDefaults struct {
	Dir string // the directory in which it starts; "" is the guest's choice
	Env map[string]string
}

// A CreateRequest asks for a sandbox. Zero fields take the server's defaults.
type CreateRequest struct {
	Name    string
	Image   string
	Network Network
	// Workspace names a workspace of the principal, created on first use, to
	// mount at [WorkDir]. With "", the files there are removed with the sandbox.
	Workspace string
	// Snapshot names a snapshot of the principal, whose state the sandbox begins with.
	// Image must be empty then; Network and Limits are those of the snapshot where they
	// are empty. CPUs, processes and disk cannot be others. If the snapshot is of a
	// sandbox with a workspace, the sandbox has one too: a new one where Workspace is
	// empty. CopyWorkspace fills it with what is in the workspace of that sandbox now.
	Snapshot      string
	CopyWorkspace bool
	// Volumes are further workspaces of the principal, each created on first use. They
	// need a workspace, which may be among them.
	Volumes []Volume
	// Writable are directories, besides [WorkDir] and the home directory, that
	// programs want to write. If the sandbox's root is read-only, missing ones
	// are created empty. If the root is writable, they have no effect.
	Writable []string
	Limits   Limits
	// Env is added to the environment of every run in the sandbox. It may hold
	// secrets, and is never logged or stored.
	Env map[string]string
	// HeaderRules are headers that the sandbox's network sets in requests to their
	// hosts: see [NewHeaderRule]. The network must allow the hosts. Their values
	// are only in the memory of the network's process.
	HeaderRules []Secret
	// TTL, if not zero, ends the sandbox that long after its creation, even if it
	// is used, but not later than its lifetime. The end can be moved later.
	// Without an idle limit in Limits, the sandbox then has the operator's maximum
	// as its idle limit.
	TTL time.Duration
	// AtEnd is what happens to the sandbox at the end of its TTL.
	AtEnd AtEnd
	// Restless keeps programs running while nothing uses the sandbox, until its
	// end. Without it, the programs rest: they are paused until something uses
	// the sandbox.
	Restless bool
	// Labels are notes that are stored with the sandbox. They must not hold
	// secrets.
	Labels map[string]string
	// Progress, if not nil, receives the progress while a missing image is
	// fetched. Calls do not overlap, and must return quickly.
	Progress func(ImageProgress)
}
