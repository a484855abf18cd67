// Package sandbox holds the words of Glovebox as types: what a sandbox, a run,
// a limit, a verdict, a receipt and an error are. It has no behaviour beyond
// validating and naming its own values.
//
// Every other package may import it; it imports nothing but the standard
// library. Its values are plain data, safe to copy, and never hold a resource.
package sandbox

import (
	"time"
)

// A State is where a sandbox is in its life. A sandbox starts, runs, may
// hibernate and wake any number of times, and stops once, for good.
type State string

// The states of a sandbox.
const (
	Starting   State = "starting"
	Running    State = "running"
	Hibernated State = "hibernated"
	Stopped    State = "stopped"
)

// AtEnd says what becomes of a sandbox whose end, set by its creator, has come.
type AtEnd string

// What may become of it. The empty text is AtEndStop.
const (
	AtEndStop      AtEnd = "stop"
	AtEndHibernate AtEnd = "hibernate"
)

// ImageHost is the image that stands for this machine's own system
// directories, read-only, under a private writable layer.
const ImageHost = "host"

// ImageScratch is the image that has nothing, upon which others are built.
const ImageScratch = "scratch"

// WorkDir is where a sandbox's programs start: the place where a workspace is
// mounted.
const WorkDir = "/data"

// The accounts that exist in every sandbox. Programs run as User unless root
// was asked for.
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
	// Workspace is the name, its principal's own, of the workspace at
	// [WorkDir]; "" if what is there goes with the sandbox.
	Workspace string    `json:"workspace,omitempty"`
	Limits    Limits    `json:"limits"`
	Created   time.Time `json:"created_at"`
	// Used is when the last run or work on files began or ended; the idle
	// limit counts from it.
	Used time.Time `json:"last_used_at"`
	// Ends is when it ends whether it is used or not, if its creator set an
	// end; zero is none. It does not count while the sandbox is hibernated.
	Ends time.Time `json:"ends_at,omitzero"`
	// AtEnd is what becomes of it then.
	AtEnd AtEnd `json:"at_end,omitempty"`
	// Restless sandboxes go on when nothing uses them; others rest.
	Restless bool `json:"restless,omitempty"`
	// Labels are its creator's notes on it.
	Labels map[string]string `json:"labels,omitempty"`
	// Expires is when the sandbox stops at the latest, if nothing uses it
	// before: the earlier of its idle and its lifetime limit.
	Expires time.Time `json:"expires_at"`
	// Stopped is when it stopped, and Cause says why; both are empty before.
	Ended time.Time `json:"ended_at,omitzero"`
	Cause string    `json:"cause,omitempty"`
	// Receipt says how each control is enforced.
	Receipt Receipt `json:"receipt"`
}

// A CreateRequest asks for a sandbox. Zero fields take the server's defaults.
type CreateRequest struct {
	Name    string
	Image   string
	Network Network
	// Workspace names a workspace of the principal's, made on first use, to be
	// mounted at [WorkDir]; with "" what is there goes with the sandbox.
	Workspace string
	// Writable are directories that programs want to write besides [WorkDir] and
	// their home. Where a sandbox's root cannot be written, those that its image
	// does not have are made, empty; elsewhere they are nothing special.
	Writable []string
	Limits   Limits
	// Env is added to the environment of every run in the sandbox. It may hold
	// secrets: it is never logged or stored.
	Env map[string]string
	// TTL, if not zero, ends the sandbox so long after it was made, whether it
	// is used or not, unless the end is moved. Where no idle limit is asked
	// for, it then has none but the operator's maximum.
	TTL time.Duration
	// AtEnd is what becomes of it at that end.
	AtEnd AtEnd
	// Restless lets programs go on when nothing uses the sandbox, until its
	// end. Else they rest, stopped where they are, until something does.
	Restless bool
	// Labels are notes that are kept with it. They are no place for secrets.
	Labels map[string]string
	// Progress, if not nil, is told how far the fetching of the image is, if that
	// is not here. Calls do not overlap, and must not take long.
	Progress func(ImageProgress)
}
