package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An orphan is the sentry of a box whose directory was removed, so that no state
// directory knows the box.
type orphan struct {
	pid int
	id  string // of the box
}

// findOrphans returns the orphans that this user may kill, except those of the boxes
// keep. A box has its directory before its sentry starts, and until the sentry has
// ended.
func findOrphans(keep []string) ([]orphan, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var orphans []orphan
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := sentryDir(pid)
		id := filepath.Base(dir)
		if dir == "" || slices.Contains(keep, id) || !process.IsOfBox(pid, id) || !mayKill(pid) {
			continue
		}
		if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
			orphans = append(orphans, orphan{pid, id})
		}
	}
	return orphans, nil
}

// sentryDir returns the directory of the box of a sentry, or "" if the process is no
// sentry. A sentry has the directory as an argument.
func sentryDir(pid int) string {
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	name, rest, _ := strings.Cut(string(args), "\x00")
	if name != "runsc-sandbox" {
		return ""
	}
	for arg := range strings.SplitSeq(rest, "\x00") {
		dir, ok := strings.CutPrefix(arg, "--root=")
		if ok && filepath.IsAbs(dir) && sandbox.ValidID(filepath.Base(dir)) && filepath.Base(filepath.Dir(dir)) == "boxes" {
			return dir
		}
	}
	return ""
}

// mayKill reports whether a process is this user's, or this user is root.
func mayKill(pid int) bool {
	return os.Geteuid() == 0 || process.RunsAs(pid, os.Geteuid())
}
