package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeHierarchy makes directories that stand for mounted hierarchies.
func fakeHierarchy(t *testing.T, dirs ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, d := range dirs {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFindCgroupsV1(t *testing.T) {
	root := fakeHierarchy(t, "cpu,cpuacct", "memory")
	mounts := "30 25 0:26 / " + root + "/cpu,cpuacct rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n" +
		"31 25 0:27 /box " + root + "/memory rw - cgroup cgroup rw,memory\n" +
		"33 25 0:29 / " + root + "/unified rw - cgroup2 cgroup2 rw\n"
	own := "4:memory:/box\n3:cpu,cpuacct:/not/there\n0::/\n"
	got := findV1(mounts, own)
	// A group whose directory is not there cannot be written.
	want := map[string]string{"memory": filepath.Join(root, "memory")}
	if got == nil {
		t.Fatal("none found")
	}
	if diff := cmp.Diff(want, got.base); diff != "" {
		t.Errorf("bases (-want +got):\n%s", diff)
	}
	if got.Has(CPU) || !got.Has(Memory) {
		t.Error("has does not say what is there")
	}
	if findV1("", own) != nil {
		t.Error("found groups where nothing is mounted")
	}
}

func TestFindCgroupsV2(t *testing.T) {
	root := fakeHierarchy(t, "user.slice/app")
	mounts := "29 23 0:26 / " + root + " rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
	own := "0::/user.slice/app\n"
	if c := findV2(mounts, own, false); c != nil {
		t.Errorf("found %+v without a delegated group", c)
	}
	control := filepath.Join(root, "user.slice/app/cgroup.subtree_control")
	if err := os.WriteFile(control, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c := findV2(mounts, own, false)
	if c == nil || !c.v2 || c.base[Memory] != filepath.Join(root, "user.slice/app") {
		t.Fatalf("found %+v, want the delegated group", c)
	}
	if data, _ := os.ReadFile(control); string(data) != "+cpu +memory" {
		t.Errorf("controllers handed on: %q", data)
	}
	if c.Has(PIDs) {
		t.Error("has a controller that was not delegated")
	}
	there := filepath.Join(root, "user.slice/app/cgroup.controllers")
	if err := os.WriteFile(there, []byte("cpuset cpu io memory pids\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if c = findV2(mounts, own, false); !c.Has(PIDs) {
		t.Error("does not have the controller of processes")
	}
	if data, _ := os.ReadFile(control); string(data) != "+cpu +memory +pids" {
		t.Errorf("controllers handed on: %q", data)
	}
}

func TestCgroupSettings(t *testing.T) {
	l := Limits{CPUs: 0.5, Memory: 64 << 20, Tasks: 616}
	dirs := map[string]string{CPU: "/c", Memory: "/m", PIDs: "/p"}
	v2 := (&Group{V2: true, Dirs: dirs}).settings(l)
	want := []setting{
		{CPU, "cpu.max", "50000 100000", false},
		{CPU, "cpu.max.burst", "50000", true},
		{Memory, "memory.max", "67108864", false},
		{Memory, "memory.swap.max", "0", true},
		{PIDs, "pids.max", "616", false},
	}
	if diff := cmp.Diff(want, v2, cmp.AllowUnexported(setting{})); diff != "" {
		t.Errorf("version 2 (-want +got):\n%s", diff)
	}
	v1 := (&Group{Dirs: map[string]string{Memory: "/m"}}).settings(l)
	if len(v1) != 2 || v1[0].file != "memory.limit_in_bytes" || v1[1].file != "memory.memsw.limit_in_bytes" {
		t.Errorf("version 1 without a CPU controller: %+v", v1)
	}
}

func TestCgroupReadBack(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	g := &Group{V2: true, Dirs: map[string]string{CPU: dir, Memory: dir}}
	write("cpu.max", "max 100000\n")
	if _, err := g.CPUs(); err == nil {
		t.Error("cpus() of a group without a limit gives no error")
	}
	write("cpu.max", "150000 100000\n")
	if n, err := g.CPUs(); n != 1.5 || err != nil {
		t.Errorf("cpus() = %v, %v; want 1.5", n, err)
	}
	if got := g.CPUBurst(); got != 0 {
		t.Errorf("cpuBurst() = %v where the kernel has none", got)
	}
	write("cpu.max.burst", "150000\n")
	if got := g.CPUBurst(); got != 150*time.Millisecond {
		t.Errorf("cpuBurst() = %v, want 150ms", got)
	}
	write("memory.max", "max\n")
	if _, err := g.Memory(); err == nil {
		t.Error("memory() of a group without a limit gives no error")
	}
	write("memory.events", "low 0\nhigh 0\nmax 31\noom 4\noom_kill 3\noom_group_kill 1\n")
	if n, err := g.MemoryKills(); n != 3 || err != nil {
		t.Errorf("memoryKills() = %d, %v; want 3", n, err)
	}
}

func TestMemoryUsed(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"memory.current": "5000\n", "memory.usage_in_bytes": "6000\n", "memory.stat": "anon 1\ninactive_file 1000\ntotal_inactive_file 3000\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		g    *Group
		want int64
	}{
		"Version2":      {&Group{V2: true, Dirs: map[string]string{Memory: dir}}, 4000},
		"Version1":      {&Group{Dirs: map[string]string{Memory: dir}}, 3000},
		"NotThere":      {&Group{V2: true, Dirs: map[string]string{Memory: filepath.Join(dir, "gone")}}, 0},
		"WithoutAGroup": {nil, 0},
	} {
		got, err := c.g.MemoryUsed()
		if got != c.want || (err != nil) != (c.want == 0) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestCPUTime(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"cpu.stat": "usage_usec 1500\nuser_usec 1000\n", "cpuacct.usage": "2000000\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		g    *Group
		want time.Duration
	}{
		"Version2":      {&Group{V2: true, Dirs: map[string]string{CPU: dir}}, 1500 * time.Microsecond},
		"Version1":      {&Group{Dirs: map[string]string{CPUAcct: dir}}, 2 * time.Millisecond},
		"OfBefore":      {&Group{Dirs: map[string]string{CPU: dir}}, 0},
		"NotThere":      {&Group{V2: true, Dirs: map[string]string{CPU: filepath.Join(dir, "gone")}}, 0},
		"WithoutAGroup": {nil, 0},
	} {
		got, err := c.g.CPUTime()
		if got != c.want || (err != nil) != (c.want == 0) || err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
