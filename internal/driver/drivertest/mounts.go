package drivertest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testMounts checks the host directories that a box has besides its workspace.
func testMounts(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Mounts {
		if spec, _ := s.withMounts(t); !st.refuses(t, spec) {
			t.Error("the driver declares no mounts, and accepts some")
		}
		return
	}
	t.Run("Mounts", func(t *testing.T) { mountsVisible(t, s) })
	t.Run("MountsShare", func(t *testing.T) { mountsShare(t, s) })
	t.Run("MountsUnnamed", func(t *testing.T) { mountsUnnamed(t, s) })
	t.Run("MountsNotThere", func(t *testing.T) { mountsNotThere(t, s) })
}

// withMounts returns a spec of a box with a workspace and three mounts: one in a
// directory that images have, one in directories that they lack, and a read-only
// one in the home directory. dirs are the workspace and the directories of the
// mounts.
func (s *suite) withMounts(t testing.TB) (spec *driver.Spec, dirs []string) {
	t.Helper()
	for range 4 {
		dirs = append(dirs, workspaceDir(t))
	}
	spec = s.withWorkspace(dirs[0])
	spec.Mounts = []driver.Mount{
		{Path: "/mnt/first", Dir: dirs[1]},
		{Path: "/volumes/of/mine", Dir: dirs[2]},
		{Path: "/home/user/models", Dir: dirs[3], ReadOnly: true},
	}
	return spec, dirs
}

// mountsVisible checks that programs have the mounts, that writable ones keep what is
// written when the box is gone, and that no program writes to a read-only one.
func mountsVisible(t *testing.T, s *suite) {
	st := s.open(t)
	spec, dirs := s.withMounts(t)
	for i, dir := range dirs {
		if err := os.WriteFile(filepath.Join(dir, "before"), fmt.Appendf(nil, "%d\n", i), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b := st.boxOf(t, spec)
	if got := b.MustSh(t, "cat before /mnt/first/before /volumes/of/mine/before /home/user/models/before"); got != "0\n1\n2\n3\n" {
		t.Errorf("the files that were in the directories read %q", got)
	}
	if got := b.MustSh(t, "ls -A /mnt/first /volumes/of /volumes/of/mine"); got != "/mnt/first:\nbefore\n\n/volumes/of:\nmine\n\n/volumes/of/mine:\nbefore\n" {
		t.Errorf("a new box lists %q", got)
	}
	for i, m := range spec.Mounts[:2] {
		b.MustRun(t, Cmd{Dir: m.Path, Shell: `set -e
			test -O . && test -w .
			echo one > file && test -O file && chmod 600 file && echo two >> file && chmod 644 file
			mkdir -p a/b && test -O a/b && echo three > a/b/c && mv file renamed && ln renamed hard && ln -s renamed soft`})
		b.MustRoot(t, "echo four > "+m.Path+"/root")
		for name, want := range map[string]string{"soft": "one\ntwo\n", "a/b/c": "three\n", "root": "four\n"} {
			if got, err := os.ReadFile(filepath.Join(dirs[i+1], name)); err != nil || string(got) != want {
				t.Errorf("the host reads %q, %v of %s/%s; want %q", got, err, m.Path, name, want)
			}
		}
		b.MustRun(t, Cmd{User: sandbox.Root, Shell: fmt.Sprintf("cp /bin/true %[1]s/suid; chmod 6755 %[1]s/suid; mknod %[1]s/null c 1 3; :", m.Path)})
		if fi, err := os.Lstat(filepath.Join(dirs[i+1], "suid")); err == nil && fi.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 {
			t.Errorf("the box made a program with mode %v in %s", fi.Mode(), m.Path)
		}
		if _, err := os.Lstat(filepath.Join(dirs[i+1], "null")); err == nil {
			t.Errorf("the box made a device in %s", m.Path)
		}
	}
	ro := spec.Mounts[2].Path
	for _, user := range []string{sandbox.User, sandbox.Root} {
		for _, change := range []string{"echo x > new", "echo x >> before", "rm before", "mkdir d", "chmod 600 before", "touch before"} {
			r, err := b.Run(step(t), Cmd{User: user, Dir: ro, Shell: change})
			if err != nil {
				t.Fatal(err)
			}
			if r.End.Code() == 0 {
				t.Errorf("%s may do %q in a read-only mount", user, change)
			}
		}
	}
	if entries, err := os.ReadDir(dirs[3]); err != nil || len(entries) != 1 {
		t.Errorf("a read-only mount has %v, %v; want its one file", entries, err)
	}
	if st.Info().Features.Save {
		if _, err := driver.Save(step(t), b.Box); !errors.Is(err, sandbox.Unsupported) {
			t.Errorf("Save of a box with mounts: %v, want kind unsupported", err)
		}
		b.MustSh(t, "cat /mnt/first/a/b/c")
	}
	if err := b.Destroy(step(t)); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	for _, dir := range dirs[1:3] {
		if got, err := os.ReadFile(filepath.Join(dir, "a/b/c")); err != nil || string(got) != "three\n" {
			t.Errorf("after the box's end the host reads %q, %v", got, err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("this process cannot remove what the box left: %v", err)
		}
	}
}

// mountsShare checks that a directory can be a mount of one box and the workspace of
// another.
func mountsShare(t *testing.T, s *suite) {
	st := s.open(t)
	spec, dirs := s.withMounts(t)
	a, b := st.boxOf(t, spec), st.boxOf(t, s.withWorkspace(dirs[1]))
	for i := range 3 {
		a.MustSh(t, fmt.Sprintf("echo %d >> /mnt/first/log", i))
		if got, want := b.MustSh(t, "tail -n 1 log; echo x >> log"), fmt.Sprintf("%d\n", i); got != want {
			t.Errorf("line %d of the other box's file reads %q", i, got)
		}
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.MustSh(t, "wc -l < log"); strings.TrimSpace(got) != "6" {
		t.Errorf("when one of two boxes was destroyed, the other's file has %q lines, want 6", got)
	}
}

// mountsUnnamed checks that the driver names the directory of each removed file that
// is open.
func mountsUnnamed(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Unnamed {
		return
	}
	spec, dirs := s.withMounts(t)
	b := st.boxOf(t, spec)
	p, _ := b.startReady(t, Sh(`exec 3> removed 4> /mnt/first/removed 5> /volumes/of/mine/removed
		rm removed /mnt/first/removed /volumes/of/mine/removed
		echo ready
		sleep 1000`))
	defer p.Close()
	files, ok, err := driver.ReadUnnamed(step(t), b.Box)
	if err != nil || !ok {
		t.Fatalf("ReadUnnamed: %t, %v", ok, err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Dir)
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(dirs[:3]))
	if !slices.Equal(got, want) {
		t.Errorf("the directories of removed files are %q, want %q", got, want)
	}
}

// mountsNotThere checks that each mount must be a directory.
func mountsNotThere(t *testing.T, s *suite) {
	st := s.open(t)
	for _, dir := range []string{"absent", "file"} {
		spec, dirs := s.withMounts(t)
		spec.Mounts[1].Dir = filepath.Join(filepath.Dir(dirs[2]), dir)
		if dir == "file" {
			if err := os.WriteFile(spec.Mounts[1].Dir, nil, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if b, err := st.Create(step(t), spec); err == nil {
			t.Errorf("a mount of what is no directory was accepted: %s", dir)
			if err := b.Destroy(step(t)); err != nil {
				t.Error(err)
			}
		}
	}
	st.nothingLeft(t, "after boxes were refused")
}
