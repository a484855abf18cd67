package container

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Labels of containers, volumes and images. They are stored data.
const (
	LabelState   = "glovebox.state"   // identifies the state directory; see [StateDir.ID]
	LabelSandbox = "glovebox.sandbox" // the sandbox's identifier
	LabelRecord  = "glovebox.spec"    // the [Record], as JSON; it has no secrets of users
	LabelOwner   = "glovebox.owner"   // host and pid of the process that made it, for display
	LabelLease   = "glovebox.lease"   // "owner": it ends with its creator; "server": not
	LabelRole    = "glovebox.role"    // the role of a container or volume that is no box

	LabelSnapshot = "glovebox.snapshot" // the snapshot whose files an image has
)

// Values of [LabelRole].
const (
	RoleFiller     = "filler"     // a container that fills a volume
	RoleNetwork    = "network"    // a container that carries a box's packets
	RoleWorkspaces = "workspaces" // the volume of workspaces, and the container that serves it
)

// Prefixes of the names of volumes: of all volumes, and of those with settings and
// with workspaces. They are stored data.
const (
	VolumePrefix     = "glovebox-"
	SettingsPrefix   = VolumePrefix + "settings-"
	guestPrefix      = VolumePrefix + "guest-"
	workspacesPrefix = VolumePrefix + "workspaces-"
)

// A StateDir is the part of a state directory that belongs to one driver. Its
// methods are safe for concurrent use.
type StateDir struct {
	dir string

	mu sync.Mutex
	id string // "" until the first use; guarded by mu
}

// NewStateDir returns the part of the state directory root that belongs to the
// driver of that name. It does not touch the disk.
func NewStateDir(root, driver string) *StateDir {
	return &StateDir{dir: filepath.Join(root, driver)}
}

// ID returns the identity of this state directory, and makes it if there is none.
// It distinguishes the driver's boxes on a platform that others share, perhaps from
// other machines.
func (s *StateDir) ID() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" {
		return s.id, nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", err
	}
	path := filepath.Join(s.dir, "id")
	text, err := atomicfile.Once(path, []byte(strings.ToLower(rand.Text())), 0o600)
	if err != nil {
		return "", fmt.Errorf("read identity of the state directory: %w", err)
	}
	id := strings.TrimSpace(string(text))
	if len(id) < 26 || strings.Trim(id, "abcdefghijklmnopqrstuvwxyz234567") != "" {
		return "", sandbox.Errorf(sandbox.Internal, "%s does not hold an identity", path)
	}
	s.id = id
	return id, nil
}

// Owns reports whether a container with these labels is the box ref of this state
// directory.
func (s *StateDir) Owns(labels map[string]string, ref string) (bool, error) {
	id, err := s.ID()
	return err == nil && labels[LabelState] == id && labels[LabelSandbox] == ref, err
}

// WorkspacesVolume returns the name of the volume with this state directory's
// workspaces.
func (s *StateDir) WorkspacesVolume() (string, error) {
	id, err := s.ID()
	return workspacesPrefix + id, err
}

// NetworkDir returns the directory of a box's network. It contains the socket of
// its process and a file with its policy.
func (s *StateDir) NetworkDir(ref string) (string, error) {
	if !sandbox.ValidID(ref) {
		return "", sandbox.Errorf(sandbox.Invalid, "%q is not a reference", ref)
	}
	return filepath.Join(s.dir, "networks", ref), nil
}

// IsShared reports whether boxes share the volume of that name. A driver can make
// such a volume again.
func IsShared(volume string) bool {
	return strings.HasPrefix(volume, VolumePrefix) && !strings.HasPrefix(volume, workspacesPrefix)
}
