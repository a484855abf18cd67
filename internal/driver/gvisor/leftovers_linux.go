package gvisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

var _ driver.Cleaner = (*Driver)(nil)

// leftoverAge is the minimum age of a leftover. A maker may still be about to put a
// process into a younger control group.
const leftoverAge = 10 * time.Minute

// Leftovers implements [driver.Cleaner]. The leftovers are control groups without a
// process, of boxes of any state directory except this driver's own.
func (d *Driver) Leftovers(ctx context.Context, remove bool) ([]string, error) {
	own, err := d.List(ctx)
	if err != nil {
		return nil, err
	}
	names, err := emptyGroups(groupParents(), own, time.Now().Add(-leftoverAge), remove)
	return names, sandbox.Wrap(err, "look for leftovers", "")
}

// groupParents returns the directories that contain the control groups of boxes,
// below this process's own group and below the machine's root.
func groupParents() []string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	add := func(m cgroupMount, group string) {
		for _, dir := range []string{m.dir, m.below(strings.TrimSuffix(group, "/"+serverGroup))} {
			if dir = filepath.Join(dir, cgroupParent); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, m := range cgroupMounts(string(mounts), "cgroup2") {
		add(m, ownGroup(string(own), ""))
	}
	for _, m := range cgroupMounts(string(mounts), "cgroup") {
		for option := range strings.SplitSeq(m.options, ",") {
			if option == cpuController || option == memoryController {
				add(m, ownGroup(string(own), option))
			}
		}
	}
	return dirs
}

// emptyGroups returns the groups of boxes below parents that have no process, are
// not in keep and were made before a time. If remove is set, it removes them and
// returns the removed ones.
func emptyGroups(parents, keep []string, before time.Time, remove bool) (names []string, err error) {
	for _, parent := range parents {
		entries, rerr := os.ReadDir(parent)
		if rerr != nil {
			continue // there is none, or this user may not read it
		}
		for _, entry := range entries {
			dir := filepath.Join(parent, entry.Name())
			if !entry.IsDir() || !sandbox.ValidID(entry.Name()) || slices.Contains(keep, entry.Name()) {
				continue
			}
			procs, perr := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			info, ierr := entry.Info()
			if perr != nil || ierr != nil || len(procs) > 0 || info.ModTime().After(before) {
				continue
			}
			if remove {
				if rerr := os.Remove(dir); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
					err = errors.Join(err, fmt.Errorf("remove control group: %w", rerr))
					continue
				}
			}
			names = append(names, "control group "+dir)
		}
	}
	return names, err
}
