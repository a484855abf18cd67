package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver/fake"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/engine/run"
	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// openFake returns an engine over real guests in plain processes.
func openFake(tb testing.TB, dir string, change func(*Options, *fake.Options)) *Engine {
	tb.Helper()
	if len(openFiles(tb, dir)) == 0 { // else an engine before checks
		checkLeaks(tb, dir)
	}
	fo := fake.Options{Dir: dir}
	opts := Options{
		StateDir:        dir,
		AllowUnenforced: sandbox.ControlNames(),
		Log:             slog.New(slog.NewTextHandler(testWriter{tb}, nil)),
	}
	if change != nil {
		change(&opts, &fo)
	}
	drv, err := fake.New(fo)
	if err != nil {
		tb.Fatal(err)
	}
	if n, ok := opts.Driver.(*networkDriver); ok {
		n.Driver = drv
	} else {
		opts.Driver = drv
	}
	opts.Store, err = store.Open(tb.Context(), store.Options{Dir: dir})
	if err != nil {
		tb.Fatal(err)
	}
	e, err := New(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := e.Close(ctx); err != nil {
			tb.Errorf("close engine: %v", err)
		}
		if err := drv.Close(); err != nil {
			tb.Errorf("close driver: %v", err)
		}
		if err := opts.Store.Close(); err != nil {
			tb.Errorf("close store: %v", err)
		}
	})
	return e
}

// checkLeaks checks, when the test and all its other cleanups are over, that
// no goroutine and no file below dir is left.
func checkLeaks(tb testing.TB, dir string) {
	before := runtime.NumGoroutine()
	tb.Cleanup(func() {
		var files []string
		var goroutines int
		for range 100 { // what was told to end may take a moment
			goroutines = runtime.NumGoroutine()
			files = openFiles(tb, dir)
			if goroutines <= before && len(files) == 0 {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
		var stacks bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			tb.Error(err)
		}
		tb.Errorf("%d goroutines, %d before; open files %v\n%s", goroutines, before, files, &stacks)
	})
}

func openFiles(tb testing.TB, dir string) (open []string) {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		tb.Fatal(err)
	}
	for _, fd := range fds {
		target, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(target, dir) {
			open = append(open, target)
		}
	}
	return open
}

type testWriter struct{ tb testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.tb.Logf("%s", p)
	return len(p), nil
}

func (e *Engine) mustRun(tb testing.TB, req sandbox.RunRequest) (sandbox.Run, sandbox.Output) {
	tb.Helper()
	r, err := e.Start(tb.Context(), alice, req)
	if err != nil {
		tb.Fatalf("start: %v", err)
	}
	r, err = e.Wait(tb.Context(), alice, r.ID)
	if err != nil {
		tb.Fatalf("wait: %v", err)
	}
	out, err := e.Output(tb.Context(), alice, r.ID, 0)
	if err != nil {
		tb.Fatalf("output: %v", err)
	}
	return r, out
}

func TestRuns(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{Env: map[string]string{"FROM": "sandbox", "BOTH": "sandbox"}})
	dir := t.TempDir()
	for _, c := range []struct {
		name           string
		req            sandbox.RunRequest
		want           sandbox.VerdictCode
		stdout, stderr string
	}{
		{"Code", sandbox.RunRequest{Code: "print(6*7)"}, sandbox.OK, "42\n", ""},
		{"Args", sandbox.RunRequest{Code: "import sys; print(sys.argv[1:])", Args: []string{"a b", "$(id)", ""}}, sandbox.OK, "['a b', '$(id)', '']\n", ""},
		{"Bash", sandbox.RunRequest{Code: "echo ${BASH_VERSION:+bash} $1", Language: "Bash", Args: []string{"x"}}, sandbox.OK, "bash x\n", ""},
		{"C", sandbox.RunRequest{Code: "#include <stdio.h>\nint main(int c, char **v) { puts(v[1]); return c; }", Language: "c", Args: []string{"it's"}}, sandbox.Failed, "it's\n", ""},
		{"Exit", sandbox.RunRequest{Code: "import sys; sys.exit(3)"}, sandbox.Failed, "", ""},
		{"Argv", sandbox.RunRequest{Argv: []string{"printf", "%s|", "a", "b c"}}, sandbox.OK, "a|b c|", ""},
		{"Command", sandbox.RunRequest{Commands: []string{"echo out; echo err >&2"}}, sandbox.OK, "out\n", "err\n"},
		{"Commands", sandbox.RunRequest{Commands: []string{"X=1; echo a", "echo b$X", "exit 4", "echo c"}}, sandbox.Failed, "a\nb\n", ""},
		{"Quotes", sandbox.RunRequest{Commands: []string{"echo \"it's\"", "echo '$(id)'"}}, sandbox.OK, "it's\n$(id)\n", ""},
		{"Env", sandbox.RunRequest{Commands: []string{"echo $FROM $BOTH $RUN"}, Env: map[string]string{"BOTH": "run", "RUN": "run"}}, sandbox.OK, "sandbox run run\n", ""},
		{"Dir", sandbox.RunRequest{Argv: []string{"pwd"}, Dir: dir}, sandbox.OK, dir + "\n", ""},
		{"Stdin", sandbox.RunRequest{Argv: []string{"cat"}, Stdin: []byte("in\x00put")}, sandbox.OK, "in\x00put", ""},
		{"EmptyStdin", sandbox.RunRequest{Argv: []string{"cat"}, Stdin: []byte{}}, sandbox.OK, "", ""},
		{"NoStdin", sandbox.RunRequest{Argv: []string{"cat"}}, sandbox.OK, "", ""},
		{"StdinThatIsNotRead", sandbox.RunRequest{Argv: []string{"true"}, Stdin: make([]byte, 2<<20)}, sandbox.OK, "", ""},
		{"Terminal", sandbox.RunRequest{Commands: []string{"test -t 1 && stty size"}, PTY: &sandbox.TerminalSize{Cols: 91, Rows: 17}}, sandbox.OK, "17 91\n", ""},
		{"Timeout", sandbox.RunRequest{Commands: []string{"trap '' TERM; echo begun; sleep 60 & sleep 60; echo ended"}, Timeout: 300 * time.Millisecond}, sandbox.Timeout, "begun\n", ""},
		{"Killed", sandbox.RunRequest{Commands: []string{"kill -SEGV $$"}}, sandbox.Killed, "", ""},
		{"BytesThatAreNotUTF8", sandbox.RunRequest{Argv: []string{"printf", `a\377b`}}, sandbox.OK, "a\uFFFDb", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.req.SandboxID = s.ID
			r, out := e.mustRun(t, c.req)
			if r.Verdict.Code != c.want || out.Stdout != c.stdout || out.Stderr != c.stderr {
				t.Errorf("%+v, stdout %q, stderr %q; want %s, %q, %q", r.Verdict, out.Stdout, out.Stderr, c.want, c.stdout, c.stderr)
			}
			if left, _ := filepath.Glob(run.CodeDir + "/" + r.ID + "*"); len(left) != 0 {
				// The clean-up comes after the end that Wait sees.
				time.Sleep(time.Second)
				if left, _ := filepath.Glob(run.CodeDir + "/" + r.ID + "*"); len(left) != 0 {
					t.Errorf("code left: %v", left)
				}
			}
		})
	}
}

func TestRunsThatDoNotStart(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	for _, c := range []struct {
		name string
		req  sandbox.RunRequest
		want sandbox.Kind
		text string // of the error and its hint
	}{
		{"NoProgram", sandbox.RunRequest{Argv: []string{"no-such-program"}}, sandbox.Invalid, "no-such-program"},
		{"NoDir", sandbox.RunRequest{Argv: []string{"true"}, Dir: "/no/such/dir"}, sandbox.Invalid, "cwd: there is no directory"},
		{"NoDirForCode", sandbox.RunRequest{Code: "1", Dir: "/no/such/dir"}, sandbox.Invalid, "cwd: there is no directory"},
		{"UnknownLanguage", sandbox.RunRequest{Code: "1", Language: "klingon"}, sandbox.Invalid, "python"},
		{"MissingLanguage", sandbox.RunRequest{Code: "1", Language: "julia"}, sandbox.Unsupported, "apt-get install julia"},
		{"MissingCompiler", sandbox.RunRequest{Code: "1", Language: "java", Env: nil}, sandbox.Unsupported, "default-jdk"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := os.Stat("/usr/bin/javac"); err == nil && c.name == "MissingCompiler" {
				t.Skip("this machine has a Java compiler")
			}
			c.req.SandboxID = s.ID
			_, err := e.Start(t.Context(), alice, c.req)
			if sandbox.KindOf(err) != c.want || !strings.Contains(err.Error()+sandbox.HintOf(err), c.text) {
				t.Errorf("%v (hint %q), want %s with %q", err, sandbox.HintOf(err), c.want, c.text)
			}
		})
	}
	if runs, err := e.store.Runs(t.Context(), s.ID); err != nil || len(runs) != 0 {
		t.Errorf("runs on record: %v, %v", runs, err)
	}
}

func TestInput(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	r := e.mustStart(t, sandbox.RunRequest{Commands: []string{`while read -r line; do echo "got $line"; done`}, KeepStdin: true})
	got := make(chan string, 10)
	followed := make(chan error)
	go func() {
		followed <- e.Follow(context.Background(), alice, r.ID, func(_ sandbox.StreamName, data []byte) error {
			got <- string(data)
			return nil
		})
	}()
	for i := range 3 {
		if err := e.SendInput(t.Context(), alice, r.ID, fmt.Appendf(nil, "line %d\n", i), i == 2); err != nil {
			t.Fatal(err)
		}
		if text, want := <-got, fmt.Sprintf("got line %d\n", i); text != want {
			t.Errorf("%q, want %q", text, want)
		}
	}
	if err := <-followed; err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	for name, err := range map[string]error{
		"input":  e.SendInput(t.Context(), alice, r.ID, []byte("x"), false),
		"resize": e.Resize(t.Context(), alice, r.ID, sandbox.TerminalSize{Cols: 1, Rows: 1}),
	} {
		if !errors.Is(err, sandbox.Conflict) {
			t.Errorf("%s after the end: %v", name, err)
		}
	}
	closed := e.mustStart(t, sandbox.RunRequest{SandboxID: r.SandboxID, Argv: []string{"sleep", "30"}})
	if err := e.SendInput(t.Context(), alice, closed.ID, []byte("x"), false); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("input of a run without: %v", err)
	}
	stopped, err := e.StopRun(t.Context(), alice, closed.ID)
	if err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, stopped, sandbox.Cancelled, "on request")
	again, err := e.StopRun(t.Context(), alice, closed.ID)
	if err != nil || again.Verdict != stopped.Verdict {
		t.Errorf("stopped again: %+v, %v", again, err)
	}
}

// Follow loses nothing of far more than a log keeps; the log keeps head and
// tail, and says exactly what it lacks.
func TestFlood(t *testing.T) {
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) { o.LogSize = runlog.MinSize })
	const lines, width = 1 << 19, 40
	script := fmt.Sprintf("seq -f %%0%d.0f %d", width-1, lines)
	r := e.mustStart(t, sandbox.RunRequest{Commands: []string{script}, Timeout: time.Minute})
	var n int64
	var bad string
	next := 1
	var rest []byte
	err := e.Follow(t.Context(), alice, r.ID, func(_ sandbox.StreamName, data []byte) error {
		n += int64(len(data))
		data = append(rest, data...)
		for len(data) >= width {
			if want := fmt.Sprintf("%0*d\n", width-1, next); bad == "" && string(data[:width]) != want {
				bad = fmt.Sprintf("line %d is %q", next, data[:width])
			}
			next++
			data = data[width:]
		}
		rest = bytes.Clone(data)
		return nil
	})
	if err != nil || bad != "" || n != lines*width {
		t.Errorf("%d bytes followed, %v, %s; want %d", n, err, bad, lines*width)
	}
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	out, err := e.Output(t.Context(), alice, r.ID, 10_000)
	if err != nil {
		t.Fatal(err)
	}
	shown := int64(len(strings.ReplaceAll(out.Stdout, fmt.Sprintf("[... %d bytes omitted ...]\n", out.Omitted.StdoutBytes), "")))
	if d := lines*width - shown - out.Omitted.StdoutBytes; d < -1 || d > 0 { // a newline before the marker
		t.Errorf("%d shown, %d omitted, of %d", shown, out.Omitted.StdoutBytes, lines*width)
	}
	if !strings.HasSuffix(out.Stdout, fmt.Sprintf("%d\n", lines)) || len(out.Stdout) > 10_000 {
		t.Errorf("%d bytes, ends %q", len(out.Stdout), out.Stdout[len(out.Stdout)-50:])
	}
	tail, total, err := e.ReadOutput(t.Context(), alice, r.ID, sandbox.Stdout, lines*width-width, 100)
	if err != nil || total != lines*width || string(tail) != fmt.Sprintf("%0*d\n", width-1, lines) {
		t.Errorf("%q of %d, %v", tail, total, err)
	}
	if _, _, err := e.ReadOutput(t.Context(), alice, r.ID, sandbox.Stdout, lines*width/2, 100); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("the middle: %v", err)
	}
	if _, _, err := e.ReadOutput(t.Context(), alice, r.ID, "stdin", 0, 100); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a stream that is none: %v", err)
	}
	rec, err := e.store.Run(t.Context(), r.ID)
	if err != nil || rec.StdoutBytes != lines*width || rec.KeptBytes > runlog.MinSize+mib {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestEndlessFloodTimesOut(t *testing.T) {
	e := openFake(t, t.TempDir(), func(o *Options, _ *fake.Options) { o.LogSize = runlog.MinSize })
	begun := time.Now()
	r := e.mustStart(t, sandbox.RunRequest{Argv: []string{"yes"}, Timeout: time.Second})
	// One who follows and never reads on holds the program up, not its end.
	stuck := make(chan struct{})
	followed := make(chan error)
	go func() {
		followed <- e.Follow(context.Background(), alice, r.ID, func(sandbox.StreamName, []byte) error {
			<-stuck
			return io.ErrClosedPipe
		})
	}()
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.Timeout, "1s")
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	close(stuck)
	if err := <-followed; err != io.ErrClosedPipe {
		t.Errorf("followed: %v", err)
	}
}

func TestFiles(t *testing.T) {
	ctx := t.Context()
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	dir := t.TempDir()
	name := dir + "/sub/a\n b"
	for i, text := range []string{"hello", " world"} {
		if err := e.WriteFile(ctx, alice, s.ID, name, strings.NewReader(text), i > 0); err != nil {
			t.Fatal(err)
		}
	}
	r, size, err := e.ReadFile(ctx, alice, s.ID, name, 3, 5)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(r)
	if closeErr := r.Close(); err != nil || closeErr != nil || string(data) != "lo wo" || size != 11 {
		t.Errorf("%q of %d, %v, %v", data, size, err, closeErr)
	}
	f, err := e.StatFile(ctx, alice, s.ID, name)
	if err != nil || f.Size != 11 || f.Type != sandbox.TypeFile || f.Path != name {
		t.Errorf("%+v, %v", f, err)
	}
	if err := e.MakeDir(ctx, alice, s.ID, dir+"/d/e"); err != nil {
		t.Fatal(err)
	}
	if err := e.MakeDir(ctx, alice, s.ID, dir+"/d/e"); !errors.Is(err, sandbox.Conflict) {
		t.Errorf("make a directory twice: %v", err)
	}
	e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"mv", name, dir + "/d/b"}}).ID)
	list, more, err := e.ListFiles(ctx, alice, s.ID, dir, 2)
	var names []string
	for _, f := range list {
		names = append(names, strings.TrimPrefix(f.Path, dir))
	}
	if err != nil || more || strings.Join(names, " ") != "/d /d/b /d/e /sub" {
		t.Errorf("%q, %v, %v", names, more, err)
	}
	e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"rm", "-r", dir + "/d"}}).ID)
	_, _, err = e.ReadFile(ctx, alice, s.ID, dir+"/d/b", 0, -1)
	if !errors.Is(err, sandbox.NotFound) || sandbox.HintOf(err) == "" {
		t.Errorf("removed file: %v", err)
	}
	for _, path := range []string{"", "a\x00b", strings.Repeat("x", request.MaxPath+1)} {
		if err := e.WriteFile(ctx, alice, s.ID, path, strings.NewReader(""), false); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("path %.20q: %v", path, err)
		}
	}
	if _, _, err := e.ListFiles(ctx, alice, s.ID, "/", request.MaxDepth+1); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("depth: %v", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	e := openFake(t, t.TempDir(), nil)
	s := e.mustCreate(t, sandbox.CreateRequest{})
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			r, err := e.Start(t.Context(), alice, sandbox.RunRequest{SandboxID: s.ID, Commands: []string{fmt.Sprintf("echo %d; exit %d", i, i%7)}})
			if err != nil {
				t.Error(err)
				return
			}
			r, err = e.Wait(t.Context(), alice, r.ID)
			out, outErr := e.Output(t.Context(), alice, r.ID, 0)
			if err != nil || outErr != nil || r.ExitCode == nil || *r.ExitCode != i%7 || out.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("run %d: %+v, %q, %v, %v", i, r, out.Stdout, err, outErr)
			}
		})
	}
	wg.Wait()
}

func TestGuestKilled(t *testing.T) {
	var drv *fake.Driver
	e := openFake(t, t.TempDir(), nil)
	drv = e.drv.(*fake.Driver)
	r := e.mustStart(t, sandbox.RunRequest{Commands: []string{"echo begun; sleep 60"}})
	if err := e.Follow(t.Context(), alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
		t.Fatal(err)
	}
	if err := drv.KillGuest(e.live(r.SandboxID).drv.Ref()); err != nil {
		t.Fatal(err)
	}
	checkVerdict(t, e.mustWait(t, r.ID), sandbox.SandboxLost, "died")
	if out, err := e.Output(t.Context(), alice, r.ID, 0); err != nil || out.Stdout != "begun\n" {
		t.Errorf("what it wrote before: %q, %v", out.Stdout, err)
	}
	for range 100 {
		if s := e.mustGet(t, r.SandboxID); s.State == sandbox.Stopped {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Error("the sandbox is not recorded as stopped")
}

func TestDetachedOnFake(t *testing.T) {
	dir := t.TempDir()
	set := func(o *Options, _ *fake.Options) { o.Detached = true }
	old := openFake(t, dir, set)
	r := old.mustStart(t, sandbox.RunRequest{Commands: []string{"echo a; sleep 1; echo b; exit 5"}})
	if err := old.Follow(t.Context(), alice, r.ID, func(sandbox.StreamName, []byte) error { return io.EOF }); err != io.EOF {
		t.Fatal(err)
	}
	if err := old.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	e := openFake(t, dir, set)
	r = e.mustWait(t, r.ID)
	out, err := e.Output(t.Context(), alice, r.ID, 0)
	if err != nil || r.ExitCode == nil || *r.ExitCode != 5 || out.Stdout != "a\nb\n" {
		t.Errorf("%+v, %q, %v", r, out.Stdout, err)
	}
	if err := e.Stop(t.Context(), alice, r.SandboxID); err != nil {
		t.Fatal(err)
	}
}
