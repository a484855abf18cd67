package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Parents returns the directories that contain the control groups of boxes,
// below this process's own group and below the machine's root.
func Parents() []string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	add := func(m mount, group string) {
		for _, dir := range []string{m.dir, m.below(strings.TrimSuffix(group, "/"+serverGroup))} {
			if dir = filepath.Join(dir, parentGroup); !slices.Contains(dirs, dir) {
				dirs = append(dirs, dir)
			}
		}
	}
	for _, m := range mountsOf(string(mounts), "cgroup2") {
		add(m, ownGroup(string(own), ""))
	}
	for _, m := range mountsOf(string(mounts), "cgroup") {
		for option := range strings.SplitSeq(m.options, ",") {
			if option == CPU || option == Memory {
				add(m, ownGroup(string(own), option))
			}
		}
	}
	return dirs
}

// Empty returns the groups of boxes below parents that have no process, are
// not in keep, were made before a time, and which this user may remove. If remove is set, it removes them and
// returns the removed ones.
func Empty(parents, keep []string, before time.Time, remove bool) (names []string, err error) {
	for _, parent := range parents {
		if unix.Access(parent, unix.W_OK|unix.X_OK) != nil {
			continue // there is none, or this user may not remove groups in it
		}
		entries, rerr := os.ReadDir(parent)
		if rerr != nil {
			continue
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
