package process_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestStart(t *testing.T) {
	h := guesttest.New(t)
	for name, tc := range map[string]struct {
		req    *guestapi.StartRequest
		stdout string
		stderr string
		end    guestapi.End
	}{
		"output and status": {
			req:    guesttest.Sh("echo out; echo err >&2; exit 3"),
			stdout: "out\n", stderr: "err\n",
			end: guestapi.End{Status: guestapi.EndExit, ExitCode: new(3), Text: "exit status 3"},
		},
		"signal": {
			req: guesttest.Sh("kill -9 $$"),
			end: guestapi.End{Status: guestapi.EndDied, Text: "signal: killed", Detail: guestapi.EndDetail{Signal: 9}},
		},
		"no input": {
			req: guesttest.Sh("cat; echo eof"), stdout: "eof\n",
			end: guestapi.End{Status: guestapi.EndOK, ExitCode: new(0), Text: "exit status 0"},
		},
		"name in PATH": {
			req:    &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "echo", Args: []string{"a b", ""}}},
			stdout: "a b \n",
			end:    guestapi.End{Status: guestapi.EndOK, ExitCode: new(0), Text: "exit status 0"},
		},
		"directory": {
			req:    &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "/bin/pwd", Cwd: "/usr/../tmp"}},
			stdout: "/tmp\n",
			end:    guestapi.End{Status: guestapi.EndOK, ExitCode: new(0), Text: "exit status 0"},
		},
		"own environment": {
			req: &guestapi.StartRequest{Process: guestapi.ProcessConfig{
				Cmd: "/bin/sh", Args: []string{"-c", "echo $A-$HOME-$LANG"}, Envs: map[string]string{"A": "1", "HOME": "/x"}},
			},
			stdout: "1-/x-C.UTF-8\n",
			end:    guestapi.End{Status: guestapi.EndOK, ExitCode: new(0), Text: "exit status 0"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.T = t
			got := guesttest.Collect(t, h.Begin(tc.req, guestapi.StartOptions{}))
			if got.Stdout != tc.stdout || got.Stderr != tc.stderr {
				t.Errorf("stdout %q, stderr %q; want %q, %q", got.Stdout, got.Stderr, tc.stdout, tc.stderr)
			}
			if got.End.Detail.PeakMemoryBytes == 0 {
				t.Error("no peak of memory")
			}
			got.End.Detail.PeakMemoryBytes, got.End.Detail.CPUMillis = 0, 0
			if diff := cmp.Diff(&tc.end, got.End); diff != "" {
				t.Errorf("end (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	h := guesttest.New(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, tc := range map[string]struct {
		cfg  guestapi.ProcessConfig
		kind sandbox.Kind
		text string
	}{
		"no command":      {guestapi.ProcessConfig{}, sandbox.Invalid, "no command"},
		"unknown command": {guestapi.ProcessConfig{Cmd: "nosuchcmd"}, sandbox.NotFound, "command not found: nosuchcmd"},
		"unknown path":    {guestapi.ProcessConfig{Cmd: "./nosuchcmd"}, sandbox.NotFound, "no such program: ./nosuchcmd"},
		"directory":       {guestapi.ProcessConfig{Cmd: "/tmp"}, sandbox.Invalid, "a directory: /tmp"},
		"not executable":  {guestapi.ProcessConfig{Cmd: write("plain", "x", 0o644)}, sandbox.Invalid, "not executable"},
		"no interpreter":  {guestapi.ProcessConfig{Cmd: write("script", "#!/no/such\n", 0o755)}, sandbox.NotFound, "interpreter"},
		"no format":       {guestapi.ProcessConfig{Cmd: write("data", "\x00\x01", 0o755)}, sandbox.Invalid, "not a program"},
		"unknown cwd":     {guestapi.ProcessConfig{Cmd: "true", Cwd: "/no/such"}, sandbox.NotFound, "/no/such"},
		"file as cwd":     {guestapi.ProcessConfig{Cmd: "true", Cwd: "/etc/passwd"}, sandbox.Invalid, "/etc/passwd"},
		"NUL":             {guestapi.ProcessConfig{Cmd: "echo", Args: []string{"a\x00b"}}, sandbox.Invalid, "NUL"},
		"bad variable":    {guestapi.ProcessConfig{Cmd: "true", Envs: map[string]string{"A=B": ""}}, sandbox.Invalid, "A=B"},
		"not UTF-8":       {guestapi.ProcessConfig{Cmd: "echo", Args: []string{"\xff"}}, sandbox.Invalid, "UTF-8"},
		"too long": {guestapi.ProcessConfig{Cmd: "true", Args: []string{strings.Repeat("x", 3<<20)}},
			sandbox.Invalid, "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.cfg.Cwd == "" {
				tc.cfg.Cwd = "/"
			}
			_, err := h.Start(t.Context(), &guestapi.StartRequest{Process: tc.cfg}, guestapi.StartOptions{})
			guesttest.WantKind(t, err, tc.kind, tc.text)
		})
	}
	if left, err := h.Processes(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	_, err := h.Start(t.Context(), guesttest.Sh("true"), guestapi.StartOptions{User: "nobodyhere"})
	guesttest.WantKind(t, err, sandbox.Invalid, "no such user: nobodyhere")
}

func TestEnvironmentIsClean(t *testing.T) {
	h := guesttest.New(t)
	got := strings.Fields(h.Run("env").Stdout)
	var names []string
	for _, e := range got {
		name, _, _ := strings.Cut(e, "=")
		names = append(names, name)
	}
	slices.Sort(names)
	want := []string{"GLOVEBOX_PROCESS", "HOME", "LANG", "LOGNAME", "PATH", "PIP_BREAK_SYSTEM_PACKAGES", "PWD", "SHELL", "USER"}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("variables (-want +got):\n%s", diff)
	}
}

func TestUsers(t *testing.T) {
	guesttest.NeedRoot(t)
	h := guesttest.New(t)
	for user, want := range map[string]string{
		"":     "1000:1000:1000:user",
		"user": "1000:1000:1000:user",
		"root": "0:0:0:root",
	} {
		r := guesttest.Collect(t, h.Begin(guesttest.Sh(`echo $(id -u):$(id -g):$(id -G):$USER`), guestapi.StartOptions{User: user}))
		if got := strings.TrimSpace(r.Stdout); got != want {
			t.Errorf("user %q is %q, want %q", user, got, want)
		}
	}
	// The user may not touch the guest.
	r := h.Run(fmt.Sprintf("kill -9 %d; kill -STOP %d; cat /proc/%d/environ; ls /proc/%d/fd", h.PID, h.PID, h.PID, h.PID))
	if n := strings.Count(r.Stderr, "ermi"); n != 4 || r.Stdout != "" {
		t.Errorf("stdout %q, stderr %q", r.Stdout, r.Stderr)
	}
}

func TestInheritsNoDescriptors(t *testing.T) {
	h := guesttest.New(t)
	if got := h.Run("ls /proc/self/fd").Stdout; got != "0\n1\n2\n3\n" { // 3 is of ls
		t.Errorf("descriptors are %q", got)
	}
}

func TestInput(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	p := h.Begin(&guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "sha256sum"}}, guestapi.StartOptions{})
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // more than one request
	if err := h.SendInput(ctx, guesttest.PIDOf(p), data, false); err != nil {
		t.Fatal(err)
	}
	if err := h.CloseStdin(ctx, guesttest.PIDOf(p)); err != nil {
		t.Fatal(err)
	}
	if got, want := guesttest.Collect(t, p).Stdout, fmt.Sprintf("%x  -\n", sha256.Sum256(data)); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	guesttest.WantKind(t, h.SendInput(ctx, guesttest.PIDOf(p), data, false), sandbox.NotFound, "no process")
}

func TestInputErrors(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	// A process that does not read blocks its writer, and nobody else.
	req := guesttest.Sh("exec 3<&0; sleep 1000")
	req.Stdin = nil
	p := h.Begin(req, guestapi.StartOptions{})
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := h.SendInput(short, guesttest.PIDOf(p), make([]byte, 1<<20), false); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("blocked input: %v", err)
	}
	waiting := make(chan error, 1)
	go func() { waiting <- h.SendInput(ctx, guesttest.PIDOf(p), make([]byte, 1<<20), false) }()
	time.Sleep(50 * time.Millisecond)
	if err := h.CloseStdin(ctx, guesttest.PIDOf(p)); err != nil {
		t.Fatal(err)
	}
	guesttest.WantKind(t, <-waiting, sandbox.Conflict, "input is closed")
	guesttest.WantKind(t, h.SendInput(ctx, guesttest.PIDOf(p), []byte("x"), false), sandbox.Conflict, "input is closed")
	if err := h.Signal(ctx, guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}

	req = guesttest.Sh("exec <&-; echo closed; sleep 1000")
	req.Stdin = nil
	p = h.Begin(req, guestapi.StartOptions{})
	if ev, err := p.Next(); err != nil || string(ev.Data.Stdout) != "closed\n" {
		t.Fatal(ev, err)
	}
	guesttest.WantKind(t, h.SendInput(ctx, guesttest.PIDOf(p), []byte("x"), false), sandbox.Conflict, "does not read")
	guesttest.WantKind(t, h.SendInput(ctx, guesttest.PIDOf(p), []byte("x"), true), sandbox.Conflict, "no terminal")
	guesttest.WantKind(t, h.Resize(ctx, guesttest.PIDOf(p), guestapi.PTYSize{Cols: 1, Rows: 1}), sandbox.Conflict, "no terminal")
	if err := h.Signal(ctx, guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}

	p = h.Begin(guesttest.Sh("sleep 1000"), guestapi.StartOptions{})
	guesttest.WantKind(t, h.SendInput(ctx, guesttest.PIDOf(p), []byte("x"), false), sandbox.Conflict, "without input")
	guesttest.WantKind(t, h.CloseStdin(ctx, guesttest.PIDOf(p)), sandbox.Conflict, "without input")
	if err := h.Signal(ctx, guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestTerminal(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	p := h.Begin(&guestapi.StartRequest{
		Process: guestapi.ProcessConfig{Cmd: "/bin/sh", Envs: map[string]string{"PS1": "$ "}, Cwd: "/"},
		PTY:     &guestapi.PTY{Size: &guestapi.PTYSize{Cols: 100, Rows: 30}},
	}, guestapi.StartOptions{})
	seen := ""
	expect := func(text string) {
		t.Helper()
		for {
			if _, rest, ok := strings.Cut(seen, text); ok {
				seen = rest
				return
			}
			ev, err := p.Next()
			if err != nil || ev.End != nil {
				t.Fatalf("waiting for %q: %v, %v, after %q", text, ev, err, seen)
			}
			if len(ev.Data.Stdout)+len(ev.Data.Stderr) > 0 {
				t.Fatalf("output beside the terminal's: %+v", ev.Data)
			}
			seen += string(ev.Data.PTY)
		}
	}
	send := func(text string) {
		t.Helper()
		if err := h.SendInput(ctx, guesttest.PIDOf(p), []byte(text), true); err != nil {
			t.Fatal(err)
		}
	}
	expect("$ ")
	send("stty size; tty; echo $TERM\n")
	expect("30 100\r\n/dev/pts/")
	expect("xterm-256color\r\n")
	if err := h.Resize(ctx, guesttest.PIDOf(p), guestapi.PTYSize{Cols: 77, Rows: 22}); err != nil {
		t.Fatal(err)
	}
	send("stty size </dev/tty\n")
	expect("22 77\r\n")
	guesttest.WantKind(t, h.Resize(ctx, guesttest.PIDOf(p), guestapi.PTYSize{Cols: 1 << 17, Rows: 1}), sandbox.Invalid, "too large")
	send("sleep 1000\n")
	guesttest.Eventually(t, "sleep runs", func() bool { return h.Programs("sleep") == 1 })
	send("\x03") // Control-C goes to the program in the foreground
	guesttest.Eventually(t, "sleep is interrupted", func() bool { return h.Programs("sleep") == 0 })
	if err := h.CloseStdin(ctx, guesttest.PIDOf(p)); err != nil {
		t.Fatal(err)
	}
	if end := guesttest.Collect(t, p).End; end.ExitCode == nil {
		t.Errorf("end is %+v", end)
	}
}

func TestSignals(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	for _, sig := range []struct {
		name guestapi.Signal
		text string
	}{{guestapi.SIGTERM, "TERM"}, {guestapi.SIGINT, "INT"}, {guestapi.SIGHUP, "HUP"}} {
		// The whole group gets it: the shell, and sleep, for which it waits.
		p := h.Begin(guesttest.Sh("trap 'echo got "+sig.text+"; exit 7' "+sig.text+"; echo ready; sleep 1000"), guestapi.StartOptions{})
		if ev, err := p.Next(); err != nil || string(ev.Data.Stdout) != "ready\n" {
			t.Fatal(ev, err)
		}
		guesttest.Eventually(t, "sleep runs", func() bool { return h.Programs("sleep") == 1 })
		if err := h.Signal(ctx, guesttest.PIDOf(p), sig.name); err != nil {
			t.Fatal(err)
		}
		if r := guesttest.Collect(t, p); r.Stdout != "got "+sig.text+"\n" || r.End.Code() != 7 {
			t.Errorf("%s: %q, %+v", sig.name, r.Stdout, r.End)
		}
	}
	p := h.Begin(guesttest.Sh("sleep 1000"), guestapi.StartOptions{})
	guesttest.WantKind(t, h.Signal(ctx, guesttest.PIDOf(p), "SIGNAL_SIGSEGV"), sandbox.Invalid, "SIGSEGV")
	if err := h.Signal(ctx, guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if end := guesttest.Collect(t, p).End; end.ExitCode != nil || end.Detail.Signal != 9 || end.Detail.TimedOut {
		t.Errorf("end is %+v, %+v", end, end.Detail)
	}
	guesttest.WantKind(t, h.Signal(ctx, guestapi.ProcessSelector{PID: 1}, guestapi.SIGKILL), sandbox.NotFound, "no process 1")
	guesttest.WantKind(t, h.Signal(ctx, guestapi.ProcessSelector{}, guestapi.SIGKILL), sandbox.NotFound, "no process 0")
}

func TestListAndTags(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	req := guesttest.Sh("sleep 1000")
	req.Tag = "mine"
	p := h.Begin(req, guestapi.StartOptions{})
	_, err := h.Start(ctx, req, guestapi.StartOptions{})
	guesttest.WantKind(t, err, sandbox.Conflict, `"mine" is in use`)
	list, err := h.Processes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want := []guestapi.ProcessInfo{{Config: req.Process, PID: p.PID(), Tag: "mine"}}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if err := h.Signal(ctx, guestapi.ProcessSelector{Tag: "mine"}, guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	guesttest.Collect(t, p)
	if list, err := h.Processes(ctx); err != nil || len(list) != 0 {
		t.Errorf("list is %v, %v", list, err)
	}
	p = h.Begin(req, guestapi.StartOptions{}) // the tag is free again
	if err := h.Signal(ctx, guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestEndingTheCallLeavesTheProcess(t *testing.T) {
	h := guesttest.New(t)
	ctx, cancel := context.WithCancel(t.Context())
	p, err := h.Start(ctx, guesttest.Sh("sleep 0.3; echo done; sleep 1000"), guestapi.StartOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := p.Next(); !errors.Is(err, context.Canceled) || sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("error is %v", err)
	}
	q, err := h.Connect(t.Context(), guesttest.PIDOf(p))
	if err != nil {
		t.Fatal(err)
	}
	ev, err := q.Next()
	if err != nil || string(ev.Data.Stdout) != "done\n" {
		t.Errorf("%v, %v", ev, err)
	}
	if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestEndDetail(t *testing.T) {
	h := guesttest.New(t)
	for name, tc := range map[string]struct {
		script string
		want   guestapi.EndDetail
	}{
		"nothing":       {"exit 1", guestapi.EndDetail{}},
		"disk text":     {"echo 'cat: write error: No space left on device' >&2; exit 1", guestapi.EndDetail{DiskFull: true}},
		"disk, but ok":  {"echo 'No space left on device' >&2; exit 0", guestapi.EndDetail{}},
		"long before":   {"echo 'No space left on device' >&2; seq 100 >&2; exit 1", guestapi.EndDetail{}},
		"fork text":     {"echo 'sh: 1: Cannot fork' >&2; exit 2", guestapi.EndDetail{ProcessLimit: true}},
		"memory text":   {"echo MemoryError >&2; exit 1", guestapi.EndDetail{MemoryKill: true}},
		"signal":        {"kill -15 $$", guestapi.EndDetail{Signal: 15}},
		"left behind":   {"sleep 1000 >/dev/null 2>&1 & exit 0", guestapi.EndDetail{Left: 1}},
		"left detached": {"(setsid sleep 1000 >/dev/null 2>&1 &) ; exit 0", guestapi.EndDetail{Left: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			h := *h
			h.T = t
			got := h.Run(tc.script).End.Detail
			got.CPUMillis, got.PeakMemoryBytes = 0, 0
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("detail (-want +got):\n%s", diff)
			}
		})
	}
	r := h.Run("i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done")
	if r.End.Detail.CPUMillis < 10 {
		t.Errorf("it used %d ms of CPU", r.End.Detail.CPUMillis)
	}
}

func setOOMScore(file *os.File, score string) error {
	_, err := file.WriteAt([]byte(score), 0)
	return err
}

// The guest is the last to be killed for memory; its children are as likely
// as they were.
func TestOOMScore(t *testing.T) {
	guesttest.NeedRoot(t)
	before, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := setOOMScore(file, "-1"); err != nil {
		t.Skip("needs CAP_SYS_RESOURCE: ", err)
	}
	if err := setOOMScore(file, strings.TrimSpace(string(before))); err != nil {
		t.Fatal(err)
	}
	h := guesttest.New(t)
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", h.PID))
	if err != nil || string(own) != "-999\n" {
		t.Errorf("the guest's is %q, %v", own, err)
	}
	if got := h.Run("cat /proc/self/oom_score_adj").Stdout; got != string(before) {
		t.Errorf("a child's is %q, want %q", got, before)
	}
}
