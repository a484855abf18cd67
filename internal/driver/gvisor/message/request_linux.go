package message

import (
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/builds"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/trace"
)

// The driver and its supervisor communicate over a socket of packets. Each packet
// is one request, in JSON. It carries the end of a new stream socket for the reply;
// closing that stream early cancels the request. A request that opens streams to
// the guest carries their far ends as further descriptors.

// Request is a request of the driver to the supervisor.
type Request struct {
	Op   string       `json:"op"`
	Ref  string       `json:"ref,omitempty"`
	Spec *driver.Spec `json:"spec,omitempty"`
	// Secrets are the values of the spec's secrets, or those of Rules, which the
	// encoded ones do not contain.
	Secrets []string `json:"secrets,omitempty"`
	// After is the number of the last connection that the caller knows. Network is
	// a policy to put in force.
	After   int64           `json:"after,omitempty"`
	Network sandbox.Network `json:"network,omitempty"`
	// Rules are header rules to put in force with Network, if Ruled is set.
	Rules []sandbox.Secret `json:"rules,omitempty"`
	Ruled bool             `json:"ruled,omitempty"`
	// Root is the root file system of the spec's image; nil for the host's.
	Root *ImageRoot `json:"root,omitempty"`
	// FirstUser, for OpCreate, OpRestore and OpRestart, is the first of the box's users. If it is 0, the box has the
	// supervisor's users; WhyHostUsers is then the reason, if root runs the server. If
	// it is not 0 and the spec has a workspace, the last files are the trees of the
	// workspace and of the mounts, in that order.
	FirstUser    int    `json:"first_user,omitempty"`
	WhyHostUsers string `json:"why_host_users,omitempty"`
	// Snapshot is the one that OpSnapshot makes, that OpCreateFrom uses, and that
	// OpRestore uses in place of the box's own state.
	Snapshot string `json:"snapshot,omitempty"`
	// StateKey opens encrypted states, for OpRestore and OpCreateFrom. OpSaveSealed and
	// OpSnapshotSealed encrypt with it.
	StateKey sealed.Key `json:"state_key,omitempty"`
	// Lease is the lease of a box, for OpLease.
	Lease *driver.Lease `json:"lease,omitempty"`
	// Trace requests spans of the supervisor's work.
	Trace bool `json:"trace,omitempty"`
}

// ImageRoot is the root file system of a box with an OCI image.
type ImageRoot struct {
	File   string              `json:"file"` // EROFS image of the root file system
	Config sandbox.ImageConfig `json:"config"`
}

// The operations of a request.
const (
	OpCreate     = "create"
	OpAttach     = "attach"
	OpDial       = "dial"
	OpReceipt    = "receipt"
	OpIncidents  = "incidents"
	OpUnnamed    = "unnamed" // returns the sentry and the workspace
	OpPause      = "pause"
	OpResume     = "resume"
	OpDestroy    = "destroy"
	OpList       = "list"
	OpDiscard    = "discard"
	OpProbe      = "probe"
	OpTraffic    = "traffic"
	OpSetNetwork = "set network"
	OpAuthority  = "authority"
	OpWatch      = "watch"   // carries the box's memory file
	OpLease      = "lease"   // since VersionLease
	OpSave       = "save"    // since VersionSave
	OpRestore    = "restore" // since VersionSave; resumes a saved box
	OpUsage      = "usage"   // since VersionUsage

	// Since VersionSnapshot.
	OpSnapshot       = "snapshot"
	OpCreateFrom     = "create from"
	OpSnapshots      = "list snapshots"
	OpRemoveSnapshot = "remove snapshot" // Ref is the snapshot

	// Since VersionSealed. They are OpSave and OpSnapshot with encryption, and have names
	// of their own so that an earlier supervisor does not leave the encryption out.
	OpSaveSealed     = "save encrypted"
	OpSnapshotSealed = "snapshot encrypted"

	OpRestart = "restart" // since VersionRestart
)

// Version is the version of these messages that a supervisor of this program
// understands; its replies carry it. Replies of earlier supervisors have no version,
// which decodes as 0.
const (
	Version         = VersionRestart
	VersionLease    = 1
	VersionUsage    = 2
	VersionSave     = 3
	VersionSnapshot = 4
	VersionSealed   = 5
	VersionRestart  = 6
)

// Reply is the supervisor's answer.
type Reply struct {
	Version   int              `json:"version,omitempty"`
	Err       *Error           `json:"err,omitempty"`
	Report    *Report          `json:"report,omitempty"`
	Sentry    int              `json:"sentry,omitempty"` // process ID, for requests that need it
	Workspace string           `json:"workspace,omitempty"`
	Mounts    []string         `json:"mounts,omitempty"` // directories of the mounts that are writable
	Incidents driver.Incidents `json:"incidents"`
	Usage     *driver.Usage    `json:"usage,omitempty"` // nil if nothing counts it
	Refs      []string         `json:"refs,omitempty"`
	Traffic   *sandbox.Traffic `json:"traffic,omitempty"`
	Authority []byte           `json:"authority,omitempty"`
	Spans     []trace.Span     `json:"spans,omitempty"`
	// Saved is the state of a saved box.
	Saved *driver.Saved `json:"saved,omitempty"`
	// Snapshot is the one that OpSnapshot made.
	Snapshot *driver.Snapshot `json:"snapshot,omitempty"`
	// Order, in the reply to OpResume, is the spec of a saved box, which OpRestore
	// resumes.
	Order *driver.Spec `json:"order,omitempty"`
	// Build is the build of the supervisor that can restore the box, or make a box from
	// the snapshot, if that is another one.
	Build *builds.ID `json:"build,omitempty"`
}

// BuildsDir is the directory of builds in the driver's state directory, and BasesDir
// that of the bases of states.
const (
	BuildsDir = "builds"
	BasesDir  = "bases"
)

// PagesFile is the file of a state that has the memory and the writable layer.
const PagesFile = "pages.img"

// StateDir returns the place of the saved state of a box, in a state directory.
func StateDir(stateDir, ref string) string {
	return filepath.Join(stateDir, "gvisor", "boxes", ref, "state")
}
