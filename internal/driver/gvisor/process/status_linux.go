package process

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Status returns the fields of a process's status. For a field with several
// values, it returns the first.
func Status(pid int) (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(data)) {
		name, value, ok := strings.Cut(line, ":")
		if f := strings.Fields(value); ok && len(f) > 0 {
			fields[name] = f[0]
		}
	}
	return fields, nil
}

// NamespaceDepth returns in how many PID namespaces a process has an ID, from the
// one of /proc on.
func NamespaceDepth(pid int) (int, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(data), "\nNSpid:")
	line, _, _ := strings.Cut(rest, "\n")
	return len(strings.Fields(line)), nil
}

// RunsAs reports whether all user IDs of a process are that user of the host.
func RunsAs(pid, uid int) bool {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(data), "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	ids := strings.Fields(line)
	return err == nil && len(ids) == 4 && !slices.ContainsFunc(ids, func(id string) bool { return id != strconv.Itoa(uid) })
}

// Threads returns the IDs of a process's threads.
func Threads(pid int) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join("/proc", strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, e := range entries {
		if tid, err := strconv.Atoi(e.Name()); err == nil {
			tids = append(tids, tid)
		}
	}
	return tids, nil
}

// Descendants returns pid and its descendants, parents first.
func Descendants(pid int) []int {
	if pid <= 0 {
		return nil
	}
	pids := []int{pid}
	for i := 0; i < len(pids); i++ {
		tids, err := Threads(pids[i])
		if err != nil {
			continue // the process has ended
		}
		for _, tid := range tids {
			// Open the file by its name. A listing of the thread's directory would
			// make the host kernel cache an entry for each file and discard it when
			// the thread ends.
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pids[i], tid))
			if err != nil {
				continue
			}
			for f := range strings.FieldsSeq(string(data)) {
				if child, err := strconv.Atoi(f); err == nil {
					pids = append(pids, child)
				}
			}
		}
	}
	return pids
}
