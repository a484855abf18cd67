package supervisor

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/cgroup"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
)

// TestCountCPU moves the count of a group to the record, in both versions of control
// groups. A repetition, as after the death of a supervisor, counts nothing twice.
func TestCountCPU(t *testing.T) {
	for _, v2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v2=%t", v2), func(t *testing.T) {
			s := &supervisor{dir: t.TempDir(), boxes: map[string]*box{}}
			dir := t.TempDir()
			group := &cgroup.Group{V2: v2, Dirs: map[string]string{cgroup.CPU: dir, cgroup.CPUAcct: dir}}
			b := &box{dir: t.TempDir(), record: message.Record{Cgroup: group}}
			s.boxes["box"] = b
			counted := func(d time.Duration) {
				t.Helper()
				name, text := "cpuacct.usage", fmt.Sprint(d.Nanoseconds(), "\n")
				if v2 {
					name, text = "cpu.stat", fmt.Sprintf("usage_usec %d\nuser_usec 1\n", d.Microseconds())
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			used := func(want time.Duration) {
				t.Helper()
				u, err := s.usage("box")
				if err != nil || u == nil || u.CPU != want {
					t.Errorf("used %+v, %v, want %v", u, err, want)
				}
			}
			count := func() {
				t.Helper()
				if err := b.countCPULocked(); err != nil {
					t.Fatal(err)
				}
			}
			counted(2 * time.Second)
			used(2 * time.Second)
			count()
			count()
			used(2 * time.Second)
			counted(3 * time.Second) // the processes end
			count()
			used(3 * time.Second)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			used(3 * time.Second)
			count()
			b.record.GroupCPUTime = 0 // the box is woken, with a new group
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			counted(time.Second)
			used(4 * time.Second)
			count()
			used(4 * time.Second)
		})
	}
}
