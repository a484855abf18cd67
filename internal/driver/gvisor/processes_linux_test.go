package gvisor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestHostTasks has the programs of a box be nearly as many as the box may have, with
// each of them computing, and then as many users try for more. The host has no
// more processes and threads than the limit of the control group says, and the
// box never gets that far.
func TestHostTasks(t *testing.T) {
	dir, d := open(t)
	spec := harness.Spec()
	spec.Limits.Processes = 24
	box := drivertest.Launch(t, d, spec)
	most := 64 + 4*(24+128)

	count := func(c drivertest.Cmd) (result drivertest.Result, tasks int) {
		t.Helper()
		c.OnData = func(data *guestapi.DataEvent) {
			result.Stdout += string(data.Stdout)
			if strings.Contains(result.Stdout, "held") && tasks == 0 {
				tasks = hostTasks(t, dir, box.Ref())
			}
		}
		if _, err := box.Run(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		return result, tasks
	}
	compute := "i=1; while [ $i -lt 20 ]; do (while :; do :; done) & i=$((i+1)); done; sleep 1; echo held; sleep 1; kill -9 -1"
	r, computing := count(drivertest.Sh(compute))
	if computing == 0 {
		t.Fatalf("programs that compute: %q", r.Stdout)
	}
	users := drivertest.Python(harness.Python, drivertest.ForkUsers, "24", "1")
	users.User = sandbox.Root
	r, forking := count(users)
	if forking == 0 {
		t.Fatalf("programs of five users: %q", r.Stdout)
	}
	t.Logf("the host has %d tasks for 20 programs that compute, and %d for as many of five users; of %d that it may have", computing, forking, most)
	if max(computing, forking) > most {
		t.Error("these are too many")
	}
	for _, group := range groups(t, box.Ref()) {
		limit, err := os.ReadFile(filepath.Join(group, "pids.max"))
		if err != nil {
			continue // the group of another controller
		}
		if got := strings.TrimSpace(string(limit)); got != strconv.Itoa(most) {
			t.Errorf("pids.max is %s, want %d", got, most)
		}
		if events := read(t, filepath.Join(group, "pids.events")); !strings.HasPrefix(events, "max 0\n") {
			t.Errorf("the box met the limit of its control group: %s", events)
		}
		return
	}
	if os.Geteuid() == 0 {
		t.Error("there is no limit on the host's processes")
	}
}

// hostTasks counts the processes and threads of a box on the host.
func hostTasks(t *testing.T, dir, ref string) int {
	t.Helper()
	n := 0
	for _, pid := range hostProcesses(t, dir, ref) {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none of one that has ended
		n += len(threads)
	}
	return n
}

// groups returns the directories of a box's control groups.
func groups(t *testing.T, ref string) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{"/sys/fs/cgroup/glovebox/", "/sys/fs/cgroup/*/glovebox/", "/sys/fs/cgroup/*/*/glovebox/", "/sys/fs/cgroup/*/*/*/glovebox/"} {
		dirs, err := filepath.Glob(pattern + ref)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, dirs...)
	}
	return found
}
