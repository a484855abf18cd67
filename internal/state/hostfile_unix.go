//go:build unix

package state

import (
	"os"
	"syscall"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// HostFileAt returns the file at a path, which must be a regular file.
func HostFileAt(path string) (HostFile, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return HostFile{}, err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || !fi.Mode().IsRegular() {
		return HostFile{}, &os.PathError{Op: "save", Path: path, Err: os.ErrInvalid}
	}
	return HostFile{Path: path, Bytes: fi.Size(), Modified: fi.ModTime().UnixNano(), Inode: st.Ino}, nil
}

// CheckHost returns an error if a file of the machine has changed, which programs in
// the state execute or have open.
func (m *Manifest) CheckHost() error {
	for _, saved := range m.Host {
		now, err := HostFileAt(saved.Path)
		if err != nil || now != saved {
			return sandbox.WithHint(
				sandbox.Errorf(sandbox.Unavailable, "programs of the sandbox use %s, which has changed on this machine since the sandbox was saved", saved.Path),
				"make another sandbox; sandboxes of an OCI image do not depend on the machine's files")
		}
	}
	return nil
}
