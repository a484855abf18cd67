package gvisor

import (
	"debug/elf"

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
