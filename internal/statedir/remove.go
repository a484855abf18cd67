package statedir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// contents are the names in a state directory: of the store, the engine, templates,
// the guest's program, the update, the edges, and the drivers. A state directory with any other
// name is not removed.
var contents = []string{
	"state.db", "state.db-wal", "state.db-shm", "state.db-journal", "state.lock", "use.lock",
	"owners", "logs", "workspaces", "images", "templates", "guest", "update.json", "token", "access.key",
	"gvisor", "docker", "podman", "e2b", "fake",
}

// temporary are the prefixes of the names of files that a killed process left: of
// package atomicfile, and of doctor.
var temporary = []string{".new-", ".doctor-"}

// Check returns an error unless dir is a state directory that this user may remove:
// it has the database known, belongs to this user, and has nothing that Glovebox did
// not make. The error wraps [fs.ErrNotExist] if there is no such directory.
func Check(dir, known string) error {
	fi, err := os.Lstat(dir)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "state directory: %w", err)
	}
	if !fi.IsDir() {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "state directory %s: it is a link or a file, and is not removed", dir),
			"name the directory itself with --state-dir")
	}
	d, err := os.Open(dir)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "open state directory: %w", err)
	}
	defer d.Close()
	if _, owner, ours, err := looseness(d); err != nil || !ours {
		return errors.Join(err, sandbox.Errorf(sandbox.Invalid, "state directory %s: it belongs to user %d, and not to this one", dir, owner))
	}
	names, err := d.Readdirnames(-1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read state directory: %w", err)
	}
	const hint = "check --state-dir and GLOVEBOX_STATE_DIR; nothing was removed"
	if db, err := os.Lstat(filepath.Join(dir, known)); err != nil || !db.Mode().IsRegular() {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%s is not a state directory of Glovebox: it has no file %s", dir, known), hint)
	}
	var foreign []string
	for _, name := range names {
		begins := func(prefix string) bool { return strings.HasPrefix(name, prefix) }
		if !slices.Contains(contents, name) && !slices.ContainsFunc(temporary, begins) {
			foreign = append(foreign, name)
		}
	}
	if len(foreign) > 0 {
		slices.Sort(foreign)
		more := ""
		if len(foreign) > 3 {
			foreign, more = foreign[:3], " and others"
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "state directory %s: it has files that are not Glovebox's: %s%s", dir, strings.Join(foreign, ", "), more),
			"move these files elsewhere, or %s", hint)
	}
	return nil
}

// Remove removes the directory that [Check] accepts, with all its content. It follows
// no link in it.
func Remove(dir, known string) error {
	if err := Check(dir, known); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "open state directory: %w", err)
	}
	defer root.Close()
	d, err := root.Open(".")
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "open state directory: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "read state directory: %w", err)
	}
	// The database is last, so that another try still recognises the directory.
	if i := slices.Index(names, known); i >= 0 {
		names = append(slices.Delete(names, i, i+1), known)
	}
	for _, name := range names {
		if err := root.RemoveAll(name); err != nil {
			return sandbox.Errorf(sandbox.Unavailable, "remove state directory: %w", err)
		}
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.Unavailable, "remove state directory: %w", err)
	}
	return nil
}
