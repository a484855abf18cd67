package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/workspace"
)

// openCopies returns an engine whose driver cannot mount workspaces, and the
// workspace "w" of alice, as long as it is there.
func openCopies(t *testing.T, dir string, change func(*Options)) (e *Engine, path func() string) {
	t.Helper()
	return openCopiesOf(t, dir, func(o *Options, _ *fake.Options) {
		if change != nil {
			change(o)
		}
	})
}

func openCopiesOf(t *testing.T, dir string, change func(*Options, *fake.Options)) (e *Engine, path func() string) {
	t.Helper()
	set, err := workspace.Open(filepath.Join(dir, "workspaces"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	e = openFake(t, dir, func(o *Options, fo *fake.Options) {
		o.Workspaces = workspace.Local{Set: set}
		fo.NoWorkspace, fo.WorkspaceCopied, fo.NoPause = true, true, true
		change(o, fo)
	})
	return e, func() string {
		id, _, err := e.WorkspaceOf(t.Context(), alice, "w")
		if err != nil {
			t.Error(err)
		}
		return set.Path(workspace.ID(id))
	}
}

// tree tells what is below a directory, apart from owners and times.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name := strings.TrimPrefix(path, dir+"/")
		switch fi, err := d.Info(); {
		case err != nil:
			return err
		case fi.IsDir():
			all[name] = "directory"
		case fi.Mode()&os.ModeSymlink != 0:
			to, err := os.Readlink(path)
			all[name] = "-> " + to
			return err
		default:
			text, err := os.ReadFile(path)
			all[name] = fi.Mode().Perm().String() + " " + string(text)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (e *Engine) put(t *testing.T, name, text string) {
	t.Helper()
	id, _, err := e.WorkspaceOf(t.Context(), alice, "w")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.PutFile(t.Context(), id, name, strings.NewReader(text), int64(len(text))); err != nil {
		t.Fatal(err)
	}
}

func TestCopiedWorkspace(t *testing.T) {
	e, path := openCopies(t, t.TempDir(), nil)
	var archive bytes.Buffer
	a := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	r, _ := e.mustRun(t, inSpace(a.ID, `umask 022; mkdir -p d/deep/er empty; echo one > d/deep/er/file
printf x > "$(printf 'new\nline')"; printf y > "$(printf 'no\377utf8')"; printf z > -dash; printf s > ' space '
: > nothing; ln -s d/deep link; ln -s /etc/passwd outside; echo run > x.sh; chmod 755 x.sh; ln x.sh hard
truncate -s 3M holes; printf end >> holes; mkfifo pipe; echo old > kind; mkdir swap; echo in > swap/in`))
	if r.Verdict.Code != sandbox.OK || r.Changes == nil || r.Changes.Created != 13 {
		t.Errorf("%+v, %+v", r.Verdict, r.Changes)
	}
	want := map[string]string{
		"d": "directory", "d/deep": "directory", "d/deep/er": "directory", "empty": "directory", "swap": "directory",
		"d/deep/er/file": "-rw-r--r-- one\n", "new\nline": "-rw-r--r-- x", "no\xffutf8": "-rw-r--r-- y", "-dash": "-rw-r--r-- z", " space ": "-rw-r--r-- s",
		"nothing": "-rw-r--r-- ", "link": "-> d/deep", "outside": "-> /etc/passwd", "x.sh": "-rwxr-xr-x run\n", "hard": "-rwxr-xr-x run\n",
		"holes": "-rw-r--r-- " + strings.Repeat("\x00", 3<<20) + "end", "kind": "-rw-r--r-- old\n", "swap/in": "-rw-r--r-- in\n",
	}
	if diff := cmp.Diff(want, tree(t, path())); diff != "" {
		t.Fatalf("after the first run (-want +got):\n%s", diff)
	}
	if err := e.ExportWorkspace(t.Context(), alice, "w", &archive); err != nil {
		t.Error(err)
	}

	// What another puts there is in the sandbox, and removals and changes of
	// kind come, too.
	e.put(t, "put/by/url", "from outside")
	r, out := e.mustRun(t, inSpace(a.ID, `cat put/by/url; rm -r d; mv nothing renamed; rm kind; mkdir kind; echo k > kind/k; rm -r swap; echo file > swap`))
	if out.Stdout != "from outside" || r.Verdict.Code != sandbox.OK {
		t.Errorf("%q, %+v", out.Stdout, r.Verdict)
	}
	for name := range want {
		if name == "d" || strings.HasPrefix(name, "d/") || name == "swap/in" || name == "nothing" {
			delete(want, name)
		}
	}
	want["put"], want["put/by"], want["put/by/url"] = "directory", "directory", "-rw-r--r-- from outside"
	want["renamed"], want["kind"], want["kind/k"], want["swap"] = "-rw-r--r-- ", "directory", "-rw-r--r-- k\n", "-rw-r--r-- file\n"
	if diff := cmp.Diff(want, tree(t, path())); diff != "" {
		t.Fatalf("after the second run (-want +got):\n%s", diff)
	}

	// Another sandbox has all of it, and what one does the other sees.
	b := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	_, out = e.mustRun(t, inSpace(b.ID, "pwd; cat kind/k; rm kind/k; echo b > from-b"))
	in, rest, _ := strings.Cut(out.Stdout, "\n")
	if rest != "k\n" {
		t.Errorf("the second sandbox: %q", out.Stdout)
	}
	if _, out = e.mustRun(t, inSpace(a.ID, "cat from-b; ls kind | wc -l")); out.Stdout != "b\n0\n" {
		t.Errorf("the first one after it: %q", out.Stdout)
	}
	// What is written by a request is there when that is answered.
	if err := e.WriteFile(t.Context(), alice, b.ID, in+"/asked", strings.NewReader("for"), false); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, path())["asked"]; got != "-rw-r--r-- for" {
		t.Errorf("a file that was written: %q", got)
	}
	// What a program writes that nobody waits for, when the sandbox ends.
	_, _ = e.mustRun(t, inSpace(b.ID, "(sleep 0.5; echo late > late) >/dev/null 2>&1 & :"))
	time.Sleep(time.Second)
	if err := e.Stop(t.Context(), alice, b.ID); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, path())["late"]; got != "-rw-r--r-- late\n" {
		t.Errorf("at the end: %q", got)
	}
	e.mustRun(t, inSpace(a.ID, "true")) // when what went to it is there
	for _, s := range []sandbox.Sandbox{a, b} {
		if left, _ := filepath.Glob("/tmp/.glovebox-" + s.ID + "-*"); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
}

// TestCopiedConflict changes a file on both sides while a run goes on.
func TestCopiedConflict(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	e, path := openCopies(t, t.TempDir(), func(o *Options) {
		o.dialGuest = func(b driver.Box) guestlink.Guest { return gatedGuest{Guest: guestlink.Dial(b), gate: &gate} }
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo 0 > same; echo 0 > removed; echo 0 > kept"))
	r := e.mustStart(t, inSpace(s.ID, "sleep 0.5; echo a > same; rm removed; echo a > kept"))
	opened := make(chan struct{})
	gate.Store(&opened) // as if copying took long
	for name, text := range map[string]string{"same": "url", "removed": "url"} {
		if err := os.WriteFile(filepath.Join(path(), name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(path(), "kept")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	close(opened)
	if r = e.mustWait(t, r.ID); r.Verdict.Code != sandbox.OK {
		t.Errorf("%+v", r.Verdict)
	}
	got := map[string]string{}
	for name, text := range tree(t, path()) {
		name, _, _ = strings.Cut(name, ".conflict-")
		_, text, _ = strings.Cut(text, " ")
		got[name] += text
	}
	if got["same"] != "a\nurl" && got["same"] != "urla\n" || len(tree(t, path())) != 4 || got["removed"] != "url" || got["kept"] != "a\n" {
		t.Errorf("after a conflict: %q", tree(t, path()))
	}
	if _, out := e.mustRun(t, inSpace(s.ID, "cat same same.conflict-* removed kept")); out.Stdout != "a\nurlurla\n" {
		t.Errorf("in the sandbox: %q", out.Stdout)
	}
}

// workDirOf returns where a sandbox of the fake driver has its files.
func workDirOf(t *testing.T, e *Engine, id string) string {
	t.Helper()
	_, out := e.mustRun(t, inSpace(id, "pwd"))
	return strings.TrimSpace(out.Stdout)
}

func TestCopiedQuota(t *testing.T) {
	e, path := openCopies(t, t.TempDir(), func(o *Options) { o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 1 << 20, Files: 20} })
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo kept > file"))
	for _, command := range []string{"head -c 2000000 /dev/urandom > big", "rm -f big; for i in $(seq 30); do echo > f$i; done"} {
		r, _ := e.mustRun(t, inSpace(s.ID, command+"; echo changed > file"))
		if r.Verdict.Code != sandbox.DiskFull || !strings.Contains(r.Verdict.Cause, "no change was copied") {
			t.Errorf("%s: %+v", command, r.Verdict)
		}
		if diff := cmp.Diff(map[string]string{"file": "-rw-r--r-- kept\n"}, tree(t, path())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
	if r, _ := e.mustRun(t, inSpace(s.ID, "rm -f f[0-9]*")); r.Verdict.Code != sandbox.OK || tree(t, path())["file"] != "-rw-r--r-- changed\n" {
		t.Errorf("after cleaning up: %+v, %q", r.Verdict, tree(t, path()))
	}
}

// brokenGuest cuts streams of programs that pack, as often as is left.
type brokenGuest struct {
	guestlink.Guest
	left *atomic.Int64
}

func (g brokenGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	s, err := g.Guest.Start(ctx, req, opts)
	if err == nil && len(req.Process.Args) > 1 && strings.Contains(req.Process.Args[1], packing) && g.left.Add(-1) >= 0 {
		return &cutStream{Events: s, left: 200}, nil
	}
	return s, err
}

type cutStream struct {
	guestlink.Events
	left int
}

func (s *cutStream) Next() (*guestapi.Event, error) {
	ev, err := s.Events.Next()
	if err == nil && ev.Data != nil {
		if s.left -= len(ev.Data.Stdout); s.left < 0 {
			return nil, sandbox.Errorf(sandbox.Unavailable, "cut")
		}
	}
	return ev, err
}

func TestCopyCutOff(t *testing.T) {
	var left atomic.Int64
	e, path := openCopies(t, t.TempDir(), func(o *Options) {
		o.dialGuest = func(b driver.Box) guestlink.Guest { return brokenGuest{guestlink.Dial(b), &left} }
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo 1 > a; echo 1 > b"))
	t.Cleanup(func() { // what a program is cut off from its end leaves is the sandbox's
		names, _ := filepath.Glob("/tmp/.glovebox-" + s.ID + "-*")
		for _, name := range names {
			if err := os.Remove(name); err != nil {
				t.Error(err)
			}
		}
	})
	left.Store(1)
	if r, _ := e.mustRun(t, inSpace(s.ID, "echo 2 > a; head -c 100000 /dev/zero > b")); r.Verdict.Code != sandbox.OK || tree(t, path())["a"] != "-rw-r--r-- 2\n" {
		t.Errorf("cut off once: %+v", r.Verdict)
	}
	left.Store(3)
	r, _ := e.mustRun(t, inSpace(s.ID, "echo 3 > a; rm b; echo 3 > c"))
	if r.Verdict.Code != sandbox.Failed || !strings.Contains(r.Verdict.Cause, "could not be copied to the workspace") {
		t.Errorf("cut off for good: %+v", r.Verdict)
	}
	if got := tree(t, path()); got["a"] != "-rw-r--r-- 2\n" || got["c"] != "" || len(got["b"]) != 100000+len("-rw-r--r-- ") {
		t.Errorf("half of a copy was put in place: %v", len(got))
	}
	if r, _ := e.mustRun(t, inSpace(s.ID, "true")); r.Verdict.Code != sandbox.OK {
		t.Errorf("afterwards: %+v", r.Verdict)
	}
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- 3\n", "c": "-rw-r--r-- 3\n"}, tree(t, path())); diff != "" {
		t.Errorf("afterwards (-want +got):\n%s", diff)
	}
}

// TestCopiedBoxKilled: what was copied before stays, and the sandbox says so.
func TestCopiedBoxKilled(t *testing.T) {
	e, path := openCopies(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo 1 > a"))
	r := e.mustStart(t, inSpace(s.ID, "echo 2 > a; echo written; sleep 60"))
	if err := e.Follow(t.Context(), alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
		t.Fatal(err)
	}
	if err := e.live(s.ID).drv.Destroy(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r = e.mustWait(t, r.ID); r.Verdict.Code != sandbox.SandboxLost {
		t.Errorf("%+v", r.Verdict)
	}
	// Until the stop ends, the sandbox has the cause without the note on the copy.
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end) && e.live(s.ID) != nil; {
		time.Sleep(20 * time.Millisecond)
	}
	got := e.mustGet(t, s.ID)
	if got.State != sandbox.Stopped {
		t.Errorf("it is %s", got.State)
	}
	if !strings.Contains(got.Cause, "the workspace has what was copied at 20") {
		t.Errorf("it says %q", got.Cause)
	}
	if diff := cmp.Diff(map[string]string{"a": "-rw-r--r-- 1\n"}, tree(t, path())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCopyTakenOver: the next server knows what both sides had.
func TestCopyTakenOver(t *testing.T) {
	dir := t.TempDir()
	old, path := openCopies(t, dir, detached)
	s := old.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	old.mustRun(t, inSpace(s.ID, "echo 1 > a; echo 1 > b; echo 1 > c"))
	in := workDirOf(t, old, s.ID)
	old.crash(t)
	// Meanwhile both sides go on.
	if err := os.Remove(filepath.Join(in, "a")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path(), "b"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	e, path := openCopies(t, dir, detached)
	if _, out := e.mustRun(t, inSpace(s.ID, "cat b; echo 2 > c; ls")); out.Stdout != "2b\nc\n" {
		t.Errorf("in the sandbox: %q", out.Stdout)
	}
	if diff := cmp.Diff(map[string]string{"b": "-rw-r--r-- 2", "c": "-rw-r--r-- 2\n"}, tree(t, path())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := e.Stop(t.Context(), alice, s.ID); err != nil {
		t.Error(err)
	}
}

// packing is in the script that packs files of a copy.
const packing = "tar --create"

// findListing is the script that lists the files of a copy.
const findListing = "find . -ignore_readdir_race -mindepth 1 -printf '" + workspace.ListingFormat + "'"

// gatedGuest has programs that list wait while a gate is set, for good or until
// it is opened.
type gatedGuest struct {
	guestlink.Guest
	gate   *atomic.Pointer[chan struct{}]
	script string       // part of the program; findListing if it is empty
	waits  *atomic.Bool // set when a program waits, if it is not nil
}

// gates reports whether a script waits at the gate.
func (g gatedGuest) gates(script string) bool {
	if g.script == "" {
		return script == findListing
	}
	return strings.Contains(script, g.script)
}

func (g gatedGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	if gate := g.gate.Load(); gate != nil && len(req.Process.Args) > 1 && g.gates(req.Process.Args[1]) {
		if g.waits != nil {
			g.waits.Store(true)
		}
		select {
		case <-*gate:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return g.Guest.Start(ctx, req, opts)
}

// TestCopyStuck has a box that never says what it has.
func TestCopyStuck(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	var lists atomic.Bool
	e, _ := openCopies(t, t.TempDir(), func(o *Options) {
		o.dialGuest = func(b driver.Box) guestlink.Guest {
			return gatedGuest{Guest: guestlink.Dial(b), gate: &gate, waits: &lists}
		}
		o.endCopyTimeout = time.Second
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	in := workDirOf(t, e, s.ID)
	never := make(chan struct{})
	gate.Store(&never)
	r := e.mustStart(t, inSpace(s.ID, "true"))
	for !lists.Load() {
		time.Sleep(time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, _, err := e.ReadFile(ctx, alice, s.ID, in+"/x", 0, 0); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a file, meanwhile: %v", err)
	}
	if err := e.Stop(t.Context(), alice, s.ID); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if r = e.mustWait(t, r.ID); r.Verdict.Code == sandbox.OK {
		t.Errorf("%+v", r.Verdict)
	}
}

// TestCopyHibernated changes a workspace while the only sandbox that has it is
// paused.
func TestCopyHibernated(t *testing.T) {
	dir := t.TempDir()
	var gate atomic.Pointer[chan struct{}]
	var lists atomic.Bool
	e, _ := openCopiesOf(t, dir, func(o *Options, fo *fake.Options) {
		fo.NoPause = false
		o.dialGuest = func(b driver.Box) guestlink.Guest {
			return gatedGuest{Guest: guestlink.Dial(b), gate: &gate, waits: &lists}
		}
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo 1 > a"))
	if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
		t.Fatal(err)
	}
	opened := make(chan struct{})
	close(opened)
	gate.Store(&opened) // so that lists is set
	e.put(t, "b", "2")
	time.Sleep(50 * time.Millisecond)
	if lists.Load() {
		t.Error("something is copied to a sandbox that is paused")
	}
	if _, out := e.mustRun(t, inSpace(s.ID, "cat a b")); out.Stdout != "1\n2" {
		t.Errorf("when it wakes: %q", out.Stdout)
	}
	if err := e.Hibernate(t.Context(), alice, s.ID); err != nil {
		t.Fatal(err)
	}
	e.put(t, "b", "3")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := e.Stop(ctx, alice, s.ID); err != nil {
		t.Error(err)
	}
}

// TestCopiedKinds: each side makes a file of a directory that the other writes
// into.
func TestCopiedKinds(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	var lists atomic.Bool
	e, path := openCopies(t, t.TempDir(), func(o *Options) {
		o.dialGuest = func(b driver.Box) guestlink.Guest {
			return gatedGuest{Guest: guestlink.Dial(b), gate: &gate, waits: &lists}
		}
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "for d in here there link; do mkdir -p $d/deep; echo old > $d/deep/old; done; mkdir to to/deep; echo kept > to/deep/old"))
	opened := make(chan struct{})
	gate.Store(&opened)
	r := e.mustStart(t, inSpace(s.ID, "echo new > here/deep/new; rm -r there; echo file > there; rm link/deep/old"))
	for !lists.Load() {
		time.Sleep(time.Millisecond)
	}
	at := func(name string) string { return filepath.Join(path(), name) }
	err := errors.Join(
		os.RemoveAll(at("here")), os.WriteFile(at("here"), []byte("ours"), 0o644),
		os.WriteFile(at("there/deep/new"), []byte("ours"), 0o644),
		os.RemoveAll(at("link")), os.Symlink("to", at("link")),
	)
	if err != nil {
		t.Fatal(err)
	}
	close(opened)
	if r = e.mustWait(t, r.ID); r.Verdict.Code != sandbox.OK {
		t.Errorf("%+v", r.Verdict)
	}
	got := map[string]string{}
	for name, text := range tree(t, path()) {
		if i := strings.Index(name, ".conflict-"); i >= 0 {
			_, rest, _ := strings.Cut(name[i:], "/")
			name = strings.TrimSuffix(name[:i]+".ours/"+rest, "/")
		}
		got[name] = text
	}
	want := map[string]string{
		"here": "directory", "here/deep": "directory", "here/deep/new": "-rw-r--r-- new\n", "here.ours": "-rw-r--r-- ours",
		"there": "-rw-r--r-- file\n", "there.ours": "directory", "there.ours/deep": "directory", "there.ours/deep/new": "-rw-r--r-- ours", "there.ours/deep/old": "-rw-r--r-- old\n",
		"link": "-> to", "to": "directory", "to/deep": "directory", "to/deep/old": "-rw-r--r-- kept\n",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	in := workDirOf(t, e, s.ID)
	e.mustRun(t, inSpace(s.ID, "true"))
	if diff := cmp.Diff(tree(t, path()), tree(t, in)); diff != "" {
		t.Errorf("the sandbox has something else (-workspace +sandbox):\n%s", diff)
	}
}

// TestCopiedRace has another sandbox, and somebody who puts a file, write the
// same file while what a sandbox wrote is on its way.
func TestCopiedRace(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	var packs atomic.Bool
	e, path := openCopies(t, t.TempDir(), func(o *Options) {
		o.dialGuest = func(b driver.Box) guestlink.Guest { return gatedGuest{guestlink.Dial(b), &gate, packing, &packs} }
	})
	a := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	b := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	opened := make(chan struct{})
	gate.Store(&opened)
	r := e.mustStart(t, inSpace(a.ID, "echo a > file; echo a > other"))
	for !packs.Load() { // then it has listed what there is
		time.Sleep(time.Millisecond)
	}
	gate.Store(nil)
	e.mustRun(t, inSpace(b.ID, "echo b > file"))
	e.put(t, "other", "put\n")
	close(opened)
	if r = e.mustWait(t, r.ID); r.Verdict.Code != sandbox.OK {
		t.Errorf("%+v", r.Verdict)
	}
	got := map[string]int{}
	for name, text := range tree(t, path()) {
		name, _, aside := strings.Cut(name, ".conflict-")
		if aside {
			name += " aside"
		}
		_, text, _ = strings.Cut(text, " ")
		got[name+": "+text]++
	}
	if diff := cmp.Diff(map[string]int{"file: a\n": 1, "file aside: b\n": 1, "other: a\n": 1, "other aside: put\n": 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, id := range []string{a.ID, b.ID} {
		in := workDirOf(t, e, id)
		if diff := cmp.Diff(tree(t, path()), tree(t, in)); diff != "" {
			t.Errorf("a sandbox has something else (-workspace +sandbox):\n%s", diff)
		}
	}
}

// lyingGuest says of all files that they take no room.
type lyingGuest struct{ guestlink.Guest }

var takes = regexp.MustCompile(` \d+ (\d+\.\d+ )`)

func (g lyingGuest) Start(ctx context.Context, req *guestapi.StartRequest, opts guestapi.StartOptions) (guestlink.Events, error) {
	s, err := g.Guest.Start(ctx, req, opts)
	if err == nil && len(req.Process.Args) > 1 && req.Process.Args[1] == findListing {
		return &lyingStream{Events: s}, nil
	}
	return s, err
}

type lyingStream struct {
	guestlink.Events
	said bytes.Buffer
	end  *guestapi.Event
}

func (s *lyingStream) Next() (*guestapi.Event, error) {
	for s.end == nil {
		ev, err := s.Events.Next()
		switch {
		case err != nil:
			return nil, err
		case ev.End != nil:
			s.end = ev
			return &guestapi.Event{Data: &guestapi.DataEvent{Stdout: takes.ReplaceAll(s.said.Bytes(), []byte(" 0 $1"))}}, nil
		case ev.Data != nil:
			s.said.Write(ev.Data.Stdout)
		}
	}
	return s.end, nil
}

// TestCopiedLies has a box that says it has less than it sends.
func TestCopiedLies(t *testing.T) {
	e, path := openCopies(t, t.TempDir(), func(o *Options) {
		o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 1 << 20, Files: 20}
		o.dialGuest = func(b driver.Box) guestlink.Guest { return lyingGuest{guestlink.Dial(b)} }
	})
	s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
	e.mustRun(t, inSpace(s.ID, "echo kept > file"))
	r, _ := e.mustRun(t, inSpace(s.ID, "head -c 2000000 /dev/urandom > big; echo changed > file"))
	if r.Verdict.Code != sandbox.DiskFull || !strings.Contains(r.Verdict.Cause, "more than it announced") {
		t.Errorf("%+v", r.Verdict)
	}
	if diff := cmp.Diff(map[string]string{"file": "-rw-r--r-- kept\n"}, tree(t, path())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r, _ = e.mustRun(t, inSpace(s.ID, "head -c 900000 /dev/urandom > big")); r.Verdict.Code != sandbox.OK {
		t.Errorf("as much as may be: %+v", r.Verdict)
	}
	if r, _ = e.mustRun(t, inSpace(s.ID, "head -c 900000 /dev/urandom > big")); r.Verdict.Code != sandbox.OK {
		t.Errorf("in place of that: %+v", r.Verdict)
	}
}
