package drivertest

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// ContainerProcesses returns the processes of a box in a container. They are the processes
// of the control group whose name contains group, without the programs in but, and the
// processes that carry the network of the box ref. Zombies do not count.
func ContainerProcesses(t testing.TB, group, ref string, but ...string) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		// A file is empty here if its process has ended meanwhile.
		read := func(name string) string {
			text, _ := os.ReadFile(filepath.Join("/proc", e.Name(), name))
			return string(text)
		}
		inGroup := strings.Contains(read("cgroup"), group) && !slices.Contains(but, strings.TrimSpace(read("comm")))
		if inGroup && !strings.Contains(read("stat"), ") Z ") || read("cmdline") == "glovebox-network\x00"+ref+"\x00" {
			found = append(found, pid)
		}
	}
	return found
}
