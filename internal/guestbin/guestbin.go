// Package guestbin holds the guest program that drivers start in every box.
//
// A program that was built with the tag embedguest, as by make build, embeds the
// guest. Other programs, such as from go install, act as the guest themselves.
// They do so on Linux if their name is glovebox-guest.
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

// Name is the guest's file name, and its first argument if another program acts
// as the guest.
const Name = "glovebox-guest"

// Embedded reports whether this program embeds a guest.
func Embedded() bool { return len(program) > 0 }

// Path returns the absolute path of a guest program. It writes an embedded guest
// below stateDir first, under a name that contains its hash, so that several
// processes and versions can share the directory. Without an embedded guest, it
// returns the path of this program.
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

// materialise writes content to a file below stateDir that is named by its hash.
// It keeps an existing file with the same content.
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
	// Of several processes that start at once, one makes the file, and the others
	// leave it alone: a mount of a file fails while a rename replaces that file.
	if got, err := atomicfile.Once(path, content, 0o755); err == nil && bytes.Equal(got, content) {
		return path, nil
	}
	// The file is damaged, or the file system has no hard links. Other processes
	// may run the file now.
	return path, atomicfile.ReplaceDurably(path, content, 0o755)
}
