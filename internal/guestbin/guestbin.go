// Package guestbin holds the guest program that drivers start in every box.
//
// A program built with the tag embedguest carries it (make build does that);
// any other, such as one from go install, has none, and is then its own guest:
// on Linux the main program serves as the guest when it is called
// glovebox-guest.
//
// Only package app imports it.
package guestbin

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
)

// Name is what the guest is called: the name of its file, and its first
// argument when another program serves as the guest.
const Name = "glovebox-guest"

// Embedded reports whether this program carries a guest.
func Embedded() bool { return len(program) > 0 }

// Path returns the absolute path of a guest program. One that is embedded is
// written below stateDir first, under a name made of its content, so that
// several processes and several versions can share the directory; where none
// is, the path is that of this program.
func Path(stateDir string) (string, error) {
	if !Embedded() {
		path, err := os.Executable()
		if err != nil {
			return "", fmt.Errorf("find own program: %w", err)
		}
		return filepath.EvalSymlinks(path)
	}
	path, err := materialise(stateDir, program)
	if err != nil {
		return "", fmt.Errorf("write guest program: %w", err)
	}
	return path, nil
}

// materialise writes content to a file below stateDir that is named by its
// hash, unless it is there already and whole.
func materialise(stateDir string, content []byte) (string, error) {
	sum := sha256.Sum256(content)
	dir, err := filepath.Abs(filepath.Join(stateDir, "guest", hex.EncodeToString(sum[:8])))
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, Name)
	old, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(old, content):
		return path, nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	// A process never starts a part of the program, nor writes to a running one.
	return path, atomicfile.ReplaceDurably(path, content, 0o755)
}
