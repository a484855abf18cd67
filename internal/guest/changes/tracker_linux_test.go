package changes

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A world is a tracker of a directory.
type world struct {
	t   *testing.T
	dir string
	tr  *Tracker
	mux *http.ServeMux
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), mux: http.NewServeMux()}
	w.tr = New(nil, w.dir, true)
	t.Cleanup(w.tr.Close)
	w.tr.Routes(w.mux)
	return w
}

func (w *world) write(name, text string) {
	w.t.Helper()
	file := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) remove(name string) {
	w.t.Helper()
	if err := os.RemoveAll(filepath.Join(w.dir, name)); err != nil {
		w.t.Fatal(err)
	}
}

// api writes a file as a request does.
func (w *world) api(name, text string) {
	w.tr.Watched(func(http.ResponseWriter, *http.Request) { w.write(name, text) })(nil, nil)
}

// call calls a procedure, and returns the status.
func (w *world) call(path string, in, out any) int {
	w.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		w.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", guestapi.ContentTypeUnary)
	rec := httptest.NewRecorder()
	w.mux.ServeHTTP(rec, r)
	if rec.Code == http.StatusOK && out != nil {
		if err := json.Unmarshal(rec.Body.Bytes(), out); err != nil {
			w.t.Fatal(err)
		}
	}
	return rec.Code
}

// run is a run that does something.
func (w *world) run(name string, do func()) sandbox.Changes {
	w.t.Helper()
	return w.runIn(name, w.dir, do)
}

// runIn is a run in a directory.
func (w *world) runIn(name, dir string, do func()) sandbox.Changes {
	w.t.Helper()
	w.tr.Before(name)
	w.tr.Watch(dir)
	do()
	var out guestapi.ChangesResponse
	if status := w.call(guestapi.PathChanges, guestapi.ChangesRequest{Run: name}, &out); status != http.StatusOK || !out.Known {
		w.t.Fatalf("changes of %s: status %d, %+v", name, status, out)
	}
	return out.Changes
}

func (w *world) diff(in guestapi.DiffRequest) guestapi.DiffResponse {
	w.t.Helper()
	if in.MaxText == 0 {
		in.MaxText = sandbox.MaxDiffText
	}
	var out guestapi.DiffResponse
	if status := w.call(guestapi.PathDiff, in, &out); status != http.StatusOK {
		w.t.Fatalf("diff: status %d", status)
	}
	return out
}

// names lists changes in a short form.
func names(c sandbox.Changes) string {
	var b strings.Builder
	for _, f := range c.Files {
		fmt.Fprintf(&b, "%s%s ", map[sandbox.Change]string{sandbox.FileCreated: "+", sandbox.FileModified: "~", sandbox.FileRemoved: "-"}[f.Change], f.Path)
	}
	return strings.TrimSpace(b.String())
}

func TestRuns(t *testing.T) {
	w := newWorld(t)
	w.write("old", "old\n")
	w.write("gone", "gone\n")
	first := w.run("1", func() {
		w.write("new", "new\n")
		w.write("old", "older\n")
		w.remove("gone")
		w.write(".git/index", "x")
		w.write(".glovebox/lib/x", "x")
	})
	const hash = "7aa7a5359173d05b63cfd682e3c38487f3cb4f7f1d60659fe59fab1505977d4c" // of "new\n"
	want := sandbox.Changes{Created: 1, Modified: 1, Removed: 1, Files: []sandbox.FileChange{
		{Path: "new", Size: 4, Change: sandbox.FileCreated, SHA256: hash},
		{Path: "old", Size: 6, Change: sandbox.FileModified, SHA256: first.Files[1].SHA256},
		{Path: "gone", Change: sandbox.FileRemoved},
	}}
	if diff := cmp.Diff(want, first); diff != "" {
		t.Errorf("the first run (-want +got):\n%s", diff)
	}
	w.api("written", "by a request\n")
	if got := names(w.run("2", func() { w.write("dir/x", "x") })); got != "+dir/x" {
		t.Errorf("a run after a request that wrote: %s", got)
	}
	if got := names(w.run("3", func() {})); got != "" {
		t.Errorf("a run without changes: %s", got)
	}
	// A file that is written again with the same state within a tick.
	if got := names(w.run("4", func() { w.write("dir/x", "y") })); got != "~dir/x" {
		t.Errorf("a run that writes the same size at once: %s", got)
	}
	var out guestapi.ChangesResponse
	w.call(guestapi.PathChanges, guestapi.ChangesRequest{Run: "4", Hash: []string{"new", "none", "../../etc/passwd"}}, &out)
	if diff := cmp.Diff([]string{hash, "", ""}, out.Hashes); diff != "" {
		t.Errorf("hashes (-want +got):\n%s", diff)
	}

	if got := names(w.diff(guestapi.DiffRequest{Since: "2"}).Changes); got != "+dir/x" {
		t.Errorf("since the second run: %s", got)
	}
	d := w.diff(guestapi.DiffRequest{})
	if got := names(d.Changes); got != "+dir/x -gone +new ~old +written" {
		t.Errorf("in all: %s", got)
	}
	if !strings.Contains(string(d.Bytes), "@@ -1 +1 @@\n-old\n+older\n") {
		t.Errorf("the difference is\n%s", d.Bytes)
	}
	if got := names(w.diff(guestapi.DiffRequest{Path: "dir"}).Changes); got != "+x" {
		t.Errorf("of a directory: %s", got)
	}
	w.write("old", "old\n")
	w.remove("new")
	if got := names(w.diff(guestapi.DiffRequest{}).Changes); got != "+dir/x -gone +written" {
		t.Errorf("after two changes were undone: %s", got)
	}
	for what, in := range map[string]guestapi.DiffRequest{
		"another directory": {Path: "/etc", MaxText: 1}, "no text": {}, "another run": {Since: "9", MaxText: 1},
	} {
		if status := w.call(guestapi.PathDiff, in, nil); status == http.StatusOK {
			t.Errorf("%s: accepted", what)
		}
	}
}

// TestBeside has runs whose working directory is neither the tracker's nor the home:
// their files count from the first run there. A directory that is too large, and one
// that has another in it, change nothing for the others.
func TestBeside(t *testing.T) {
	dir := t.TempDir()
	real, err := filepath.EvalSymlinks(dir) // names are without links
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, dir: real, mux: http.NewServeMux()}
	at := func(name string) string { return filepath.Join(real, name) }
	w.write("data/old", "old\n")
	w.write("repo/sub/a", "a\n")
	w.write("repo/b", "b\n")
	w.tr = New(account.New(account.Config{}), at("data"), false)
	t.Cleanup(w.tr.Close)
	w.tr.Routes(w.mux)

	if got := names(w.runIn("1", at("data"), func() { w.write("repo/b", "2\n") })); got != "" {
		t.Errorf("a run before the directory is known: %s", got)
	}
	if status := w.call(guestapi.PathDiff, guestapi.DiffRequest{Path: at("repo"), MaxText: 1}, nil); status != http.StatusBadRequest {
		t.Errorf("differences of a directory that is not known: status %d", status)
	}
	if got, want := names(w.runIn("2", at("repo/sub"), func() { w.write("repo/sub/a", "aa\n") })), "~"+at("repo/sub/a"); got != want {
		t.Errorf("the first run in a directory: %s, want %s", got, want)
	}
	// A link to a directory means that directory, and a root may contain another.
	if err := os.Symlink(at("repo"), at("link")); err != nil {
		t.Fatal(err)
	}
	if got := names(w.runIn("3", at("link"), func() {})); got != "" {
		t.Errorf("the first run in a directory around it: %s", got)
	}
	got := names(w.runIn("4", at("data"), func() {
		w.write("repo/b", "3\n")
		w.write("repo/sub/new", "n\n")
		w.write("data/old", "older\n")
	}))
	if want := "+" + at("repo/sub/new") + " ~old ~" + at("repo/b"); got != want {
		t.Errorf("a run elsewhere: %s, want %s", got, want)
	}
	d := w.diff(guestapi.DiffRequest{Path: at("repo")})
	if got := names(d.Changes); got != "~b ~sub/a +sub/new" {
		t.Errorf("differences: %s", got)
	}
	if !strings.Contains(string(d.Bytes), "@@ -1 +1 @@\n-2\n+3\n") {
		t.Errorf("the base is not the state at the first run there:\n%s", d.Bytes)
	}

	for i := range maxBeside + 1 {
		w.write(fmt.Sprintf("large/%d", i), "")
	}
	if got := names(w.runIn("5", at("large"), func() { w.write("data/x", "x"); w.write("large/0", "x") })); got != "+x" {
		t.Errorf("a run in a directory that is too large: %s", got)
	}
	if got := names(w.runIn("6", at("large"), func() { w.write("repo/b", "4\n") })); got != "~"+at("repo/b") {
		t.Errorf("a run after it: %s", got)
	}
	if status := w.call(guestapi.PathDiff, guestapi.DiffRequest{Path: at("large"), MaxText: 1}, nil); status != http.StatusBadRequest {
		t.Errorf("differences of a directory that is too large: status %d", status)
	}

	// A repository in it is looked at nevertheless.
	w.write("large/repo/a", "a")
	w.runIn("5a", at("large/repo"), func() {})
	w.write("large/repo/a", "a")
	if got, want := names(w.runIn("5b", at("large/repo"), func() { w.write("large/repo/a", "2") })), "~"+at("large/repo/a"); got != want {
		t.Errorf("a run in a directory of it: %s, want %s", got, want)
	}
	// Directories count, too.
	for i := range maxBeside + 1 {
		if err := os.MkdirAll(at(fmt.Sprintf("deep/%d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got := names(w.runIn("5c", at("deep"), func() { w.write("deep/new", "x"); w.write("data/z", "z") })); got != "+z" {
		t.Errorf("a run in a directory with too many directories: %s", got)
	}

	// One that grows too large is forgotten, and is not told as removed.
	w.write("grows/1", "1")
	w.runIn("7", at("grows"), func() { w.write("grows/2", "2") })
	if got := names(w.runIn("8", at("grows"), func() {
		for i := range maxBeside {
			w.write(fmt.Sprintf("grows/more%d", i), "")
		}
		w.write("data/y", "y")
	})); got != "+y" {
		t.Errorf("a run in a directory that grew: %s", got)
	}
	if got := names(w.diff(guestapi.DiffRequest{Since: "7", Path: at("data")}).Changes); got != "+y" {
		t.Errorf("since the run before: %s", got)
	}

	for i := range 2 * maxWatched {
		name := fmt.Sprintf("many/%d", i)
		w.write(name+"/f", "1")
		w.runIn("many", at(name), func() {})
	}
	if n := len(w.tr.roots); n > 2+maxWatched {
		t.Errorf("%d directories are looked at", n)
	}
	for _, dir := range []string{"", "/", "/proc", at("none"), "relative", at("data/old")} {
		w.tr.Watch(dir)
	}
}

// TestBackground has a program change files between runs.
func TestBackground(t *testing.T) {
	w := newWorld(t)
	w.run("1", func() {})
	w.write("log", "of a service\n")
	time.Sleep(2 * tick) // the clock of files is coarse
	if got := names(w.run("2", func() {})); got != "" {
		t.Errorf("a change before the run counts: %s", got)
	}
}

func TestBase(t *testing.T) {
	w := newWorld(t)
	base := func(names ...string) {
		var in guestapi.BaseRequest
		for _, name := range names {
			in.Files = append(in.Files, sandbox.CopiedFile{Path: name, Executable: strings.HasSuffix(name, ".sh")})
		}
		if status := w.call(guestapi.PathBase, in, nil); status != http.StatusOK {
			t.Fatalf("base: status %d", status)
		}
	}
	w.api(".gitignore", "ignored\n")
	w.api("a", "1\n")
	w.api("run.sh", "#!/bin/sh\n")
	w.api("ignored/x", "x")
	w.api(".git/config", "x")
	w.api("written", "by the agent\n")
	base(".gitignore", "a", "run.sh", "ignored/x", ".git/config", "absent", "/etc/none")
	if got := names(w.diff(guestapi.DiffRequest{}).Changes); got != "+written" {
		t.Errorf("after a copy: %s", got)
	}
	if fi, err := os.Stat(filepath.Join(w.dir, "run.sh")); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("run.sh is %v, %v", fi.Mode(), err)
	}
	w.run("1", func() { w.write("a", "2\n"); w.remove("ignored"); w.remove(".git") })
	if got := names(w.diff(guestapi.DiffRequest{}).Changes); got != "~a +written" {
		t.Errorf("after a run: %s", got)
	}
	w.run("2", func() { w.write(".gitignore", "written\n") })
	if got := names(w.diff(guestapi.DiffRequest{}).Changes); got != "~.gitignore ~a +written" {
		t.Errorf("a file that is ignored later: %s", got)
	}
	w.api("a", "3\n")
	base("a")
	if got := names(w.diff(guestapi.DiffRequest{}).Changes); got != "~.gitignore +written" {
		t.Errorf("after a second copy: %s", got)
	}
	if d := w.diff(guestapi.DiffRequest{Since: "1"}); !strings.Contains(string(d.Bytes), "-1\n+3\n") {
		t.Errorf("since the first run:\n%s", d.Bytes)
	}
}

// TestPatch has git apply a patch of all kinds of changes, in pages.
func TestPatch(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	w := newWorld(t)
	host := t.TempDir()
	start := map[string]string{
		"a.txt": "1\n2\n3\n4\n5\n6\n7\n8\n9\n", "bin": "\x00\x01\x02", "gone": "gone\n", "gonebin": "\x00", "dir/x": "x\n", "dir/y": "y\n",
		"mode.sh": "#!/bin/sh\n", "renamed": strings.Repeat("line\n", 40), "große Datei": strings.Repeat("0123456789abcde\n", 50_000),
	}
	var in guestapi.BaseRequest
	for name, text := range start {
		w.api(name, text)
		in.Files = append(in.Files, sandbox.CopiedFile{Path: name})
		file := filepath.Join(host, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	w.call(guestapi.PathBase, in, nil)
	w.run("1", func() {
		w.write("a.txt", "1\n2\n3\n4\nfive\n6\n7\n8\n9\nten")
		w.write("bin", "\x00other")
		w.remove("gone")
		w.remove("gonebin")
		w.remove("dir")
		for _, err := range []error{
			os.Symlink("elsewhere", filepath.Join(w.dir, "dir")),
			os.Chmod(filepath.Join(w.dir, "mode.sh"), 0o755),
			os.Rename(filepath.Join(w.dir, "renamed"), filepath.Join(w.dir, "name\twith\ntab")),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		w.write("große Datei", start["große Datei"]+"one more\n")
		w.write("new/empty", "")
		w.write("new/bin", strings.Repeat("\x00\xff\x10abc", 5000))
	})
	var text []byte
	pages := 0
	for in := (guestapi.DiffRequest{Patch: true, MaxText: 2500}); ; pages++ {
		d := w.diff(in)
		text = append(text, d.Bytes...)
		if len(d.LeftOut) > 0 {
			t.Fatalf("left out: %+v", d.LeftOut)
		}
		if in.After = d.Next; d.Next == nil {
			break
		}
	}
	if pages < 2 {
		t.Errorf("%d pages", pages)
	}
	cmd := exec.Command(git, "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = host, bytes.NewReader(text)
	cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(host), "GIT_CONFIG_GLOBAL=/dev/null")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v\n%s\n%.4000s", err, out, text)
	}
	if out, err := exec.Command("diff", "-r", "--no-dereference", w.dir, host).CombinedOutput(); err != nil {
		t.Errorf("the trees differ: %v\n%s", err, out)
	}
	if fi, err := os.Stat(filepath.Join(host, "mode.sh")); err != nil || fi.Mode().Perm()&0o100 == 0 {
		t.Errorf("mode.sh: %v, %v", fi, err)
	}
}

// TestHostile looks at what is no file, and at what a program puts in the way.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	w.run("1", func() {})
	w.run("2", func() {
		w.write("f", "x\n")
		for _, cmd := range []string{"mkfifo fifo", "ln -s /dev/zero zero", "ln -s . loop", "truncate -s 3G hole", "printf 'a\\377b' >latin"} {
			sh := exec.Command("sh", "-c", cmd)
			sh.Dir = w.dir
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
		}
	})
	d := w.diff(guestapi.DiffRequest{Patch: true})
	if got := names(d.Changes); got != "+f +hole +latin +loop +zero" {
		t.Errorf("changes: %s", got)
	}
	if len(d.LeftOut) != 1 || d.LeftOut[0] != (sandbox.LeftOut{Path: "hole", Reason: "the file has more than 8 MiB"}) {
		t.Errorf("left out: %+v", d.LeftOut)
	}
	// A directory becomes a link to a directory with the same names.
	w.run("3", func() { w.write("d/x", "x\n"); w.write("e/x", "x\n") })
	got := w.run("4", func() {
		w.remove("d")
		if err := os.Symlink("e", filepath.Join(w.dir, "d")); err != nil {
			t.Fatal(err)
		}
	})
	if got := names(got); got != "+d -d/x" {
		t.Errorf("a directory that became a link: %s", got)
	}
}

func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.run("1", func() {})
	w.run("2", func() {
		for i := range 700 {
			w.write(fmt.Sprintf("f%03d", i), strings.Repeat("x\n", 100))
		}
	})
	d := w.diff(guestapi.DiffRequest{MaxText: 10_000})
	if d.Created != 700 || len(d.Files) != sandbox.MaxDiffNames || d.Omitted != 700-sandbox.MaxDiffNames {
		t.Errorf("%d created, %d named, %d omitted", d.Created, len(d.Files), d.Omitted)
	}
	if n := strings.Count(string(d.Bytes), "diff --git"); n+d.NotShown != 700 || len(d.Bytes) > 10_000 || n == 0 {
		t.Errorf("%d shown in %d bytes, %d not shown", n, len(d.Bytes), d.NotShown)
	}
	d = w.diff(guestapi.DiffRequest{MaxText: 100})
	if len(d.LeftOut) == 0 || !strings.Contains(d.LeftOut[0].Reason, "more than 100") || len(d.Bytes) > 0 {
		t.Errorf("a change that is too long: %+v", d.LeftOut)
	}
	// Contents that find no room are still in a patch.
	w.tr.contents.full = true
	w.api("late", "1\n")
	w.run("3", func() {})
	w.run("4", func() { w.write("late", "2\n") })
	d = w.diff(guestapi.DiffRequest{Since: "4"})
	if len(d.LeftOut) != 1 || !strings.Contains(d.LeftOut[0].Reason, "not kept") {
		t.Errorf("contents that were not kept: %+v", d)
	}
	if d = w.diff(guestapi.DiffRequest{Since: "4", Patch: true}); !strings.Contains(string(d.Bytes), "GIT binary patch") {
		t.Errorf("their patch:\n%s", d.Bytes)
	}
	for i := range sandbox.MaxDiffRuns {
		w.tr.Before(fmt.Sprint("more", i))
	}
	if status := w.call(guestapi.PathDiff, guestapi.DiffRequest{Since: "4", MaxText: 1}, nil); status != http.StatusBadRequest {
		t.Errorf("a run that is forgotten: status %d", status)
	}
}

func TestStore(t *testing.T) {
	s := store{}
	defer func() { s.close() }()
	first, ok := s.put([]byte("first"))
	if !ok {
		t.Fatal("not kept")
	}
	s.limit = s.end + 20
	noise := make([]byte, 100)
	for i := range noise {
		noise[i] = byte(i * i * 7)
	}
	if _, ok := s.put(noise); ok {
		t.Error("kept beyond the limit")
	}
	s.compact([]*place{&first})
	if got, ok := s.get(first, 5); !ok || string(got) != "first" {
		t.Errorf("after a compaction: %q", got)
	}
	if _, ok := s.get(place{0, 3}, 50); ok {
		t.Error("a part of contents is taken for the whole")
	}
}
