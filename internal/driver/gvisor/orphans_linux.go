package gvisor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/process"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An orphan is the sentry of a box whose supervisor has ended and whose directory was
// removed, so that no state directory knows the box.
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
	var pids []int
	var supervised []string // directories of boxes, in the roots of their supervisors
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		pids = append(pids, pid)
		if state := supervisedDir(pid); state != "" {
			supervised = append(supervised, filepath.Join("/proc", e.Name(), "root", state, "gvisor", "boxes"))
		}
	}
	var orphans []orphan
	for _, pid := range pids {
		dir := sentryDir(pid)
		id := filepath.Base(dir)
		if dir == "" || slices.Contains(keep, id) || !process.IsOfBox(pid, id) || !mayKill(pid) {
			continue
		}
		known := slices.ContainsFunc(supervised, func(boxes string) bool {
			_, err := os.Lstat(filepath.Join(boxes, id))
			return err == nil
		})
		if !known && abandoned(pid, dir) {
			orphans = append(orphans, orphan{pid, id})
		}
	}
	return orphans, nil
}

// abandoned reports whether a sentry has no supervisor and no directory. A sentry's
// own root is empty, so the directory is also looked up in the root of the process
// that inherited the sentry. If that process is in another PID namespace than this
// one, so is the server, whose files this process may not see.
func abandoned(pid int, dir string) bool {
	status, err := process.Status(pid)
	if err != nil {
		return false
	}
	parent, err := strconv.Atoi(status["PPid"])
	if err != nil || parent == 0 || supervisedDir(parent) != "" {
		return false
	}
	depth, err := process.NamespaceDepth(parent)
	if own, oerr := process.NamespaceDepth(os.Getpid()); err != nil || oerr != nil || depth != own {
		return false
	}
	// Only root may look into the root of another user's process.
	if _, err := os.Lstat(filepath.Join("/proc", status["PPid"], "root", dir)); err == nil {
		return false
	}
	_, err = os.Lstat(dir)
	return errors.Is(err, fs.ErrNotExist)
}

// supervisedDir returns the state directory that a supervisor was started with, or ""
// if the process is no supervisor. A lingering supervisor keeps its arguments.
func supervisedDir(pid int) string {
	args, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	if err != nil {
		return ""
	}
	f := strings.SplitN(string(args), "\x00", 3)
	if len(f) < 3 || f[0] != message.SupervisorName && f[0] != message.EarlierSupervisorName {
		return ""
	}
	return f[1]
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
