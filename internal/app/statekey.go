package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/sealed"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// keyIDFile is the file of the state directory that names its key: [sealed.Key.ID].
const keyIDFile = "saved-key.id"

// stateKey returns the key for encrypted states, or nil if there is none.
//
// If states are to be encrypted, it makes a missing key, once: the state directory
// remembers which key it has. A file that was lost, or replaced by another key, is an
// error as long as there may be states that only the former key opens.
func stateKey(ctx context.Context, c config.Config, records *store.Store) (sealed.Key, error) {
	const op = "configuration: saved.key"
	s := c.Saved
	if s.Key == "" {
		return nil, nil
	}
	idFile := filepath.Join(c.StateDir, keyIDFile)
	known, err := knownKey(ctx, idFile, records)
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	key, err := sealed.LoadKey(s.Key, s.Encrypt && known == "")
	switch {
	case errors.Is(err, fs.ErrNotExist) && !s.Encrypt:
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "there is no file %s, and %s may have states that only its key opens", s.Key, c.StateDir),
			"put the file back, for example from a backup; if no sandbox and snapshot of before is needed, remove %s", idFile)
		return nil, sandbox.Wrap(err, op, "")
	case err != nil || !s.Encrypt:
		return key, sandbox.Wrap(err, op, "")
	}
	id, err := key.ID()
	if err != nil {
		return nil, sandbox.Wrap(err, op, "")
	}
	if known == "" {
		// Of two processes, one records its key; both read the same file.
		if err := atomicfile.ReplaceDurably(idFile, []byte(id), 0o600); err != nil {
			return nil, sandbox.Wrap(err, op, "")
		}
	} else if known != id {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the key in %s is not the one of the states in %s", s.Key, c.StateDir),
			"put the former key back, for example from a backup; if no sandbox and snapshot of before is needed, remove %s", idFile)
		return nil, sandbox.Wrap(err, op, "")
	}
	return key, nil
}

// knownKey returns the name of the key that saved states may need, or "".
func knownKey(ctx context.Context, idFile string, records *store.Store) (string, error) {
	id, err := os.ReadFile(idFile)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	saved, err := records.SavedStates(ctx)
	if err != nil {
		return "", err
	}
	snapshots, err := records.SnapshotStates(ctx)
	if err != nil || len(saved)+len(snapshots) == 0 {
		return "", err
	}
	return string(id), nil
}

// checkEncrypts returns an error if states are to be encrypted by a driver that cannot do
// that.
func checkEncrypts(s config.Saved, driver string) error {
	if !s.Encrypt || driver == "gvisor" {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "configuration: saved.encrypt: the driver %s does not encrypt states", driver),
		"use the driver gvisor, or turn it off")
}
