package fake

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// Leftovers, for the harness of a suite, returns the files below dir and the
// processes that use dir.
func Leftovers(t testing.TB, dir string) []string {
	var left []string
	err := filepath.WalkDir(filepath.Join(dir, "boxes"), func(path string, e fs.DirEntry, err error) error {
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if path != filepath.Join(dir, "boxes") {
			left = append(left, "file "+path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range about(t, dir) {
		left = append(left, "process "+p.text)
	}
	return left
}

// A found is a process and its description.
type found struct {
	pid  int
	text string
}

// about finds the processes that have dir or something below it in their
// working directory, environment or arguments.
func about(t testing.TB, dir string) []found {
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var all []found
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil {
			continue
		}
		s, ok := readStat(pid)
		if !ok || s.dead() || pid == os.Getpid() {
			continue
		}
		proc := filepath.Join("/proc", p.Name())
		cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
		env, _ := os.ReadFile(filepath.Join(proc, "environ"))
		args, _ := os.ReadFile(filepath.Join(proc, "cmdline"))
		// The environment of a test's helper that creates boxes contains dir, so it
		// does not count.
		owner := strings.Contains(string(env), "GLOVEBOX_DRIVERTEST_OWNER")
		if strings.Contains(cwd, dir) || !owner && strings.Contains(string(env)+string(args), dir) {
			all = append(all, found{pid, fmt.Sprintf("%d in %s: %q", pid, cwd, args)})
		}
	}
	return all
}

// Processes, for the harness of a suite, returns the supervisor of a box and its
// descendants. It also returns other processes that use the directory of the box.
func Processes(t testing.TB, dir, ref string) []int {
	var pids []int
	for _, p := range about(t, filepath.Join(dir, "boxes", ref)) {
		pids = append(pids, p.pid)
	}
	sup, err := findSupervisor(filepath.Join(dir, "boxes", ref))
	if err != nil {
		return pids
	}
	defer sup.close()
	live, err := below(sup.proc.pid)
	if err != nil {
		t.Fatal(err)
	}
	pids = append(pids, sup.proc.pid)
	for _, s := range live {
		pids = append(pids, s.pid)
	}
	slices.Sort(pids)
	return slices.Compact(pids)
}
