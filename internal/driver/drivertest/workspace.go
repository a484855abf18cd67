package drivertest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testWorkspace checks the host directory that a box has as its workspace.
func testWorkspace(t *testing.T, s *suite) {
	st := s.open(t)
	if !st.Info().Features.Workspace {
		spec := s.h.Spec()
		spec.Workspace = workspaceDir(t)
		if !st.refuses(t, spec) {
			t.Error("the driver declares no workspaces, and accepts one")
		}
		if st.Info().Features.WorkspaceCopied {
			t.Run("Copied", func(t *testing.T) { workspaceCopied(t, s) })
		}
		return
	}
	t.Run("Own", func(t *testing.T) { workspaceOwn(t, s) })
	t.Run("Both", func(t *testing.T) { workspaceBoth(t, s) })
	t.Run("InPlace", func(t *testing.T) {
		b := s.open(t).boxOf(t, s.withWorkspace(workspaceDir(t)))
		fileInPlace(t, b, b.Dir(t)+"/in-place")
	})
	t.Run("Share", func(t *testing.T) { workspaceShare(t, s) })
	t.Run("Unnamed", func(t *testing.T) { workspaceUnnamed(t, s) })
	t.Run("OwnerKilled", func(t *testing.T) { workspaceOwnerKilled(t, s) })
	t.Run("Rights", func(t *testing.T) { workspaceRights(t, s) })
	t.Run("Links", func(t *testing.T) { workspaceLinks(t, s) })
	t.Run("NotThere", func(t *testing.T) { workspaceNotThere(t, s) })
	testMounts(t, s)
}

// workspaceCopied checks that clients can copy files to and from the working
// directory.
func workspaceCopied(t *testing.T, s *suite) {
	b := s.open(t).box(t)
	if got := b.Dir(t); s.open(t).Info().Isolates && got != sandbox.WorkDir {
		t.Errorf("programs start in %q, want %q", got, sandbox.WorkDir)
	}
	if got := b.MustRoot(t, `find . -mindepth 1 -printf '%y %P\n'`); got != "" {
		t.Errorf("a fresh box has %q", got)
	}
	b.MustSh(t, `test -w . && mkdir a && echo text > a/file && ln -s file a/link && chmod 600 a/file`)
	b.MustRoot(t, `set -e
		tar --create --file=/tmp/copy-$$.tar --format=gnu --sparse .
		printf './a/file\0./a/link\0./a\0' | xargs -0 -r rm -df --
		tar --extract --preserve-permissions --file=/tmp/copy-$$.tar
		rm /tmp/copy-$$.tar`)
	if got := b.MustSh(t, "cat a/link && test -O a/file && find . -mindepth 1 | wc -l"); got != "text\n3\n" {
		t.Errorf("what was packed and unpacked again: %q", got)
	}
}

// workspaceDir makes a directory for a workspace, in a parent directory that
// other users cannot enter.
func workspaceDir(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(stateDir(t), "workspace")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Lchown(dir, sandbox.UserUID, sandbox.UserUID); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// withWorkspace returns a spec of a box with the workspace dir.
func (s *suite) withWorkspace(dir string) *driver.Spec {
	spec := s.h.Spec()
	spec.Workspace = dir
	return spec
}

// workspaceOwn checks that programs own the workspace, for any user of the
// driver, and that the host has their files.
func workspaceOwn(t *testing.T, s *suite) {
	st := s.open(t)
	dir := workspaceDir(t)
	b := st.boxOf(t, s.withWorkspace(dir))
	if st.Info().Isolates {
		if got := b.Dir(t); got != sandbox.WorkDir {
			t.Errorf("programs start in %q, want %q", got, sandbox.WorkDir)
		}
	}
	// All operations that the owner of a file may do.
	b.MustSh(t, `set -e
		test -O . && test -w .
		echo one > file && test -O file && chmod 600 file && echo two >> file && chmod 444 file && chmod 644 file
		mkdir -p a/b && test -O a/b && chmod 700 a && echo three > a/b/c
		mv file renamed && ln renamed hard && ln -s renamed soft && test -O soft
		truncate -s 4096 renamed && touch -d @1000000000 renamed
		mkdir gone && rmdir gone && touch gone && rm gone`)
	b.MustRoot(t, "echo four > root && mkdir rootdir && echo five > rootdir/file && chmod 700 rootdir")
	if err := b.Destroy(step(t)); err != nil {
		t.Fatalf("Destroy: %v", err)
	}
	for name, want := range map[string]string{"a/b/c": "three\n", "root": "four\n", "rootdir/file": "five\n"} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || string(got) != want {
			t.Errorf("%s on the host after the box's end: %q, %v; want %q", name, got, err, want)
		}
	}
	fi, err := os.Stat(filepath.Join(dir, "hard"))
	if err != nil || fi.Size() != 4096 || fi.ModTime().Unix() != 1000000000 {
		t.Errorf("the file that was changed through another name: %v, %v", fi, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Errorf("this process cannot remove what the box left: %v", err)
	}
}

// workspaceBoth checks that the box and the host see each other's writes,
// including a box that was paused meanwhile.
func workspaceBoth(t *testing.T, s *suite) {
	st := s.open(t)
	dir := workspaceDir(t)
	if err := os.WriteFile(filepath.Join(dir, "before"), []byte("host 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	b := st.boxOf(t, s.withWorkspace(dir))
	if got := b.MustSh(t, "cat before; echo box > mine"); got != "host 1\n" {
		t.Errorf("the box reads %q of a file that was there before it", got)
	}
	if got, err := os.ReadFile(filepath.Join(dir, "mine")); err != nil || string(got) != "box\n" {
		t.Errorf("the host reads %q, %v of the box's file", got, err)
	}
	if _, err := driver.Pause(step(t), b.Box); err != nil {
		t.Fatal(err)
	}
	// Write files by atomic rename, one existing and one new.
	for _, name := range []string{"before", "after"} {
		if err := os.WriteFile(filepath.Join(dir, ".new"), []byte("host 2\n"), 0o666); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := driver.Resume(step(t), b.Box); err != nil {
		t.Fatal(err)
	}
	if got := b.MustSh(t, "cat before after; ls"); got != "host 2\nhost 2\nafter\nbefore\nmine\n" {
		t.Errorf("after the host replaced one file and added one, the box reads %q", got)
	}
}

// workspaceShare checks that two boxes can have the same workspace.
func workspaceShare(t *testing.T, s *suite) {
	st := s.open(t)
	dir := workspaceDir(t)
	a, b := st.boxOf(t, s.withWorkspace(dir)), st.boxOf(t, s.withWorkspace(dir))
	for i := range 5 {
		a.MustSh(t, fmt.Sprintf("echo %d >> log", i))
		if got, want := b.MustSh(t, "tail -n 1 log; echo x >> log"), fmt.Sprintf("%d\n", i); got != want {
			t.Errorf("line %d of the other box's file reads %q", i, got)
		}
	}
	if got := a.MustSh(t, "wc -l < log"); strings.TrimSpace(got) != "10" {
		t.Errorf("a file that two boxes appended to has %q lines, want 10", got)
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Fatal(err)
	}
	if got := b.MustSh(t, "wc -l < log"); strings.TrimSpace(got) != "10" {
		t.Errorf("when one of two boxes was destroyed, the other's file has %q lines, want 10", got)
	}
}

// workspaceUnnamed checks that a driver lists the removed files that programs
// still have open: only files of this box's workspace.
func workspaceUnnamed(t *testing.T, s *suite) {
	st := s.open(t)
	dir := workspaceDir(t)
	a, b := st.boxOf(t, s.withWorkspace(dir)), st.boxOf(t, s.withWorkspace(dir))
	if !st.Info().Features.Unnamed {
		if files, ok, err := driver.ReadUnnamed(step(t), a.Box); ok || err != nil {
			t.Errorf("Unnamed is not declared in Info, but answers %+v, %v", files, err)
		}
		return
	}
	list := func(b *Box) []driver.UnnamedFile {
		t.Helper()
		files, ok, err := driver.ReadUnnamed(step(t), b.Box)
		if err != nil || !ok {
			t.Fatalf("ReadUnnamed: %t, %v", ok, err)
		}
		return files
	}
	p, _ := a.startReady(t, Sh(`echo text > named
		exec 3> removed 4> removed-too 5> other 6< named
		rm removed removed-too
		mv other kept
		head -c 1000000 /dev/zero >&3
		head -c 2000000 /dev/zero >&4
		f=$(mktemp /tmp/drivertest-XXXXXX); exec 7> "$f"; rm "$f"; head -c 300000 /dev/zero >&7
		exec 8>&3
		echo ready
		while [ ! -e let-go ]; do sleep 0.05; done
		exec 3>&- 4>&- 8>&-
		sleep 1000`))
	defer p.Close()
	files := list(a)
	var sum int64
	for _, f := range files {
		sum += f.Bytes
	}
	if len(files) != 2 || files[0].Inode == files[1].Inode || sum < 3_000_000 || sum > 3_200_000 {
		t.Errorf("a program keeps two files without a name, of 3 MB together; the driver lists %+v", files)
	}
	if files := list(b); len(files) != 0 {
		t.Errorf("the driver lists files of another box: %+v", files)
	}
	if paused, err := driver.Pause(step(t), a.Box); err != nil {
		t.Error(err)
	} else if paused {
		if files := list(a); len(files) != 2 {
			t.Errorf("of a paused box the driver lists %+v", files)
		}
		if err := driver.Resume(step(t), a.Box); err != nil {
			t.Fatal(err)
		}
	}
	a.MustSh(t, "touch let-go")
	eventually(t, "files are listed that no program has open", func() bool { return len(list(a)) == 0 })
}

// workspaceOwnerKilled checks that a program's acknowledged writes survive when
// its box dies with the owner process.
func workspaceOwnerKilled(t *testing.T, s *suite) {
	st := s.open(t)
	dir := workspaceDir(t)
	o := st.own(t, order{Spec: s.withWorkspace(dir)})
	a, err := st.Attach(step(t), o.ref)
	if err != nil {
		t.Fatal(err)
	}
	box := NewBox(t, a)
	p, err := box.Start(step(t), Sh("i=0; while :; do i=$((i+1)); echo $i >> lines; echo $i; done"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var said strings.Builder
	for strings.Count(said.String(), "\n") < 200 {
		ev, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.Data != nil {
			said.Write(ev.Data.Stdout)
		}
	}
	o.kill()
	st.orphaned(t, o.ref)
	st.discardOrphans(t, "the owner of a box that writes was killed")
	whole := said.String()[:strings.LastIndexByte(said.String(), '\n')+1]
	got, err := os.ReadFile(filepath.Join(dir, "lines"))
	if err != nil || !strings.HasPrefix(string(got), whole) {
		t.Errorf("the program said %d lines; of those %d are in the file (%v)",
			strings.Count(whole, "\n"), strings.Count(string(got), "\n"), err)
	}
}

// workspaceRights checks that a box cannot leave files on the host that grant
// privileges there.
func workspaceRights(t *testing.T, s *suite) {
	st := s.open(t)
	s.isolated(t, st)
	dir := workspaceDir(t)
	b := st.boxOf(t, s.withWorkspace(dir))
	for _, user := range []string{sandbox.User, sandbox.Root} {
		b.MustRun(t, Cmd{User: user, Shell: fmt.Sprintf(`
			cp /bin/true %[1]s; chmod 4755 %[1]s; chmod 2755 %[1]s; chmod u+s,g+s %[1]s
			mkdir -m 2777 %[1]s-dir; chmod g+s %[1]s-dir
			mknod %[1]s-dev c 1 5; mknod %[1]s-block b 7 0
			:`, user)})
		if s.h.Python != "" {
			b.MustRun(t, Python(s.h.Python, `import os
os.umask(0)
for name, flags in (("made", os.O_CREAT|os.O_WRONLY), ("excl", os.O_CREAT|os.O_EXCL|os.O_WRONLY)):
	try: os.close(os.open(name, flags, 0o6777))
	except OSError: pass
try: os.mknod("node", 0o6777)
except OSError: pass
`))
		}
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		if fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeDevice) != 0 {
			t.Errorf("the box made %s on the host with mode %v", e.Name(), fi.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The box must still be able to make the files, without those modes.
	if fi, err := os.Stat(filepath.Join(dir, sandbox.Root)); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("a program that was copied: %v, %v; want mode 0755", fi, err)
	}
}

// workspaceLinks checks that programs in the box cannot follow links in a
// workspace out to the host.
func workspaceLinks(t *testing.T, s *suite) {
	st := s.open(t)
	s.isolated(t, st)
	dir := workspaceDir(t)
	outside := filepath.Join(filepath.Dir(dir), "secret")
	if err := os.WriteFile(outside, []byte("secret"), 0o644); err != nil {
		t.Fatal(err)
	}
	b := st.boxOf(t, s.withWorkspace(dir))
	for _, target := range []string{outside, "../secret", "../../../../../.." + outside, "/proc/1/root" + outside} {
		name := "link" + strconv.Itoa(len(target))
		r := b.MustRun(t, Cmd{User: sandbox.Root, Shell: "ln -s " + target + " " + name + "; cat " + name + "; ls " + name + "/; echo x > " + name})
		if strings.Contains(r.Stdout, "secret") && strings.Contains(r.Stdout, "ecret\n") {
			t.Errorf("a link to %s shows %q", target, r.Stdout)
		}
	}
	if got, err := os.ReadFile(outside); err != nil || string(got) != "secret" {
		t.Errorf("a file beside the workspace reads %q, %v", got, err)
	}
	entries, err := os.ReadDir(filepath.Dir(dir))
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory above the workspace has %v, %v", entries, err)
	}
}

// workspaceNotThere checks that a workspace must be a directory.
func workspaceNotThere(t *testing.T, s *suite) {
	st := s.open(t)
	dir := filepath.Dir(workspaceDir(t))
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{filepath.Join(dir, "absent"), filepath.Join(dir, "file"), filepath.Join(dir, "link"), "workspace"} {
		b, err := st.Create(step(t), s.withWorkspace(path))
		if err == nil {
			t.Errorf("a workspace %s was accepted", path)
			if err := b.Destroy(step(t)); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "absent")); err == nil {
		t.Error("a workspace that was not there was made")
	}
	st.nothingLeft(t, "after boxes were refused")
}
