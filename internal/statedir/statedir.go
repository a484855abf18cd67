// Package statedir makes the state directory, which only its owner may use, and
// removes it.
//
// Package app calls it before it opens anything in the directory. The package
// keeps no state.
package statedir

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Make makes the state directory, accessible only to its owner. If an existing
// directory is accessible to others and belongs to this user, it changes the
// mode. It changes no directory with files but without the file known, the
// database.
func Make(dir, known string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "make state directory: %w", err),
			"name another with --state-dir or GLOVEBOX_STATE_DIR")
	}
	d, err := os.Open(dir) // check and change the same directory
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "open state directory: %w", err),
			"make it readable for this user, or name another with --state-dir or GLOVEBOX_STATE_DIR")
	}
	defer d.Close()
	loose, owner, ours, err := looseness(d)
	if err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "look at state directory: %w", err)
	}
	if !loose {
		return nil
	}
	if !ours {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "state directory %s: others may look into it, and it belongs to user %d, and not to this one", dir, owner),
			"have its owner run chmod 700 %s, or name another with --state-dir or GLOVEBOX_STATE_DIR", dir)
	}
	// Do not change the mode of a directory with other files, such as /tmp.
	_, err = os.Lstat(filepath.Join(dir, known))
	if errors.Is(err, fs.ErrNotExist) {
		if _, err = d.Readdirnames(1); err == nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "state directory %s: others may look into it, and it has files that are not Glovebox's", dir),
				"name a directory that has nothing else with --state-dir or GLOVEBOX_STATE_DIR, or run chmod 700 %s", dir)
		}
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	if err == nil {
		err = d.Chmod(0o700)
	}
	if err != nil {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "close state directory to others: %w", err), "run chmod 700 %s", dir)
	}
	return nil
}
