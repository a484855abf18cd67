package interpreter

import (
	"os"
	"path/filepath"
	"slices"
)

// systemPath is the search path for programs in sandboxes of the image host.
var systemPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// Installed reports whether this machine has the programs of a variant in
// systemPath.
func (r Runner) Installed() bool {
	here := func(program string) bool {
		if filepath.IsAbs(program) {
			_, err := os.Stat(program)
			return err == nil
		}
		return slices.ContainsFunc(systemPath, func(dir string) bool {
			info, err := os.Stat(filepath.Join(dir, program))
			return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
		})
	}
	return slices.ContainsFunc(r.Variants, func(v Variant) bool {
		programs := v.Detect
		if len(programs) == 0 {
			programs = v.Command[:1]
		}
		return !slices.ContainsFunc(programs, func(p string) bool { return !here(p) })
	})
}
