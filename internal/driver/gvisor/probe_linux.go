package gvisor

import (
	"debug/elf"
	"os"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
)

// checkProgram returns an error if the driver's processes cannot be started from
// path. gVisor starts it again in an empty root, where a program would not find
// shared libraries.
func checkProgram(path string) error {
	f, err := elf.Open(path)
	if err != nil {
		return diagnosis.Unavailable("reinstall glovebox", "read own executable: %w", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return diagnosis.Unavailable("install it with CGO_ENABLED=0 go install github.com/glovebox-dev/glovebox/cmd/glovebox@latest, or from a release",
				"the executable %s was built with cgo and is not static", path)
		}
	}
	return nil
}

// probe checks the requirements of a box. It runs in the maker, whose existence
// shows that namespaces can be made.
func (m *maker) probe() error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return diagnosis.Unavailable("choose another with --state-dir", "state directory: %w", err)
	}
	if _, err := os.Stat(m.guest); err != nil {
		return diagnosis.Unavailable("reinstall glovebox", "guest: %w", err)
	}
	makeRoot, makeGuest := m.hostRoot, m.hostGuest
	if m.userRoot != nil {
		makeRoot, makeGuest = m.userRoot, m.userGuest
	}
	if _, err := makeRoot(); err != nil {
		return diagnosis.Unavailable("", "host image: %w", err)
	}
	if _, err := makeGuest(); err != nil {
		return diagnosis.Unavailable("", "guest: %w", err)
	}
	return nil
}
