package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testProcess checks how programs start, get input, are listed and end.
func testProcess(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	t.Run("ExitCode", func(t *testing.T) { processExit(t, b) })
	t.Run("Signal", func(t *testing.T) { processSignal(t, b) })
	t.Run("NotStarted", func(t *testing.T) { processNotStarted(t, b) })
	t.Run("Stdin", func(t *testing.T) { processStdin(t, b) })
	t.Run("Reopened", func(t *testing.T) { processReopened(t, b) })
	t.Run("Environment", func(t *testing.T) { processEnvironment(t, s) })
	t.Run("Threads", func(t *testing.T) { processThreads(t, st, b) })
	t.Run("User", func(t *testing.T) { processUser(t, st, b) })
	t.Run("Dir", func(t *testing.T) { processDir(t, st, b) })
	t.Run("List", func(t *testing.T) { processList(t, b) })
	t.Run("Connect", func(t *testing.T) { processConnect(t, b) })
	t.Run("Keep", func(t *testing.T) { processKeep(t, b) })
	t.Run("Terminal", func(t *testing.T) { processTerminal(t, b) })
	t.Run("Health", func(t *testing.T) {
		if err := b.Client.Health(step(t)); err != nil {
			t.Errorf("Health at the end: %v", err)
		}
	})
}

func processExit(t *testing.T, b *Box) {
	for _, code := range []int{0, 1, 7, 125, 126, 127, 128, 137, 255} {
		r := b.MustRun(t, Sh(fmt.Sprintf("exit %d", code)))
		if r.End.Code() != code || r.End.Detail.Signal != 0 {
			t.Errorf("exit %d: want that exit code, exited by itself, no signal; got %v", code, r)
		}
		if want := fmt.Sprintf("exit status %d", code); r.End.Text != want {
			t.Errorf("exit %d: End.Text is %q, want %q", code, r.End.Text, want)
		}
	}
	r := b.MustRun(t, Cmd{Argv: []string{"/bin/echo", "a b", "$HOME", "*", "", "'"}})
	if want := "a b $HOME *  '\n"; r.Stdout != want {
		t.Errorf("arguments must reach the program untouched: got %q, want %q", r.Stdout, want)
	}
	if r = b.MustRun(t, Cmd{Argv: []string{"echo", "found"}}); r.Stdout != "found\n" {
		t.Errorf("a command without a slash must be found in PATH; got %v", r)
	}
}

func processSignal(t *testing.T, b *Box) {
	for _, c := range []struct {
		name   string
		number int
	}{{"TERM", 15}, {"KILL", 9}, {"SEGV", 11}, {"ABRT", 6}} {
		r := b.MustRun(t, Sh("kill -"+c.name+" $$; sleep 20"))
		if r.End.ExitCode != nil || r.End.Detail.Signal != c.number {
			t.Errorf("killed by SIG%s: want exited false and EndDetail.Signal %d, got %v", c.name, c.number, r)
		}
		if !strings.HasPrefix(r.End.Text, "signal: ") {
			t.Errorf("killed by SIG%s: End.Text is %q, want one that begins with %q", c.name, r.End.Text, "signal: ")
		}
	}
	for _, c := range []struct {
		sig  guestapi.Signal
		trap string
	}{{guestapi.SIGTERM, "TERM"}, {guestapi.SIGINT, "INT"}, {guestapi.SIGHUP, "HUP"}} {
		script := fmt.Sprintf("trap 'echo got %s; exit 3' %s; echo ready; while :; do sleep 0.05; done", c.trap, c.trap)
		r := b.signalled(t, Sh(script), c.sig)
		if r.End.Code() != 3 || !strings.Contains(r.Stdout, "got "+c.trap) {
			t.Errorf("Signal(%s): the program's handler must run; got %v", c.sig, r)
		}
	}
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: 1 << 30}, guestapi.SIGTERM); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Signal to no process: got %v, want kind %s", err, sandbox.NotFound)
	}
}

// signalled starts c, waits for its first output, sends sig and returns the
// result.
func (b *Box) signalled(t testing.TB, c Cmd, sig guestapi.Signal) Result {
	t.Helper()
	p, first := b.startReady(t, c)
	defer p.Close()
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: p.PID()}, sig); err != nil {
		t.Fatalf("Signal(%s): %v", sig, err)
	}
	r, err := Collect(p, nil)
	if err != nil {
		t.Fatalf("after Signal(%s): %v", sig, err)
	}
	r.Stdout = first + r.Stdout
	return r
}

// startReady starts c and returns its stream and the first piece of output.
func (b *Box) startReady(t testing.TB, c Cmd) (*guestapi.Events, string) {
	t.Helper()
	p, err := b.Start(step(t), c)
	if err != nil {
		t.Fatalf("start %s: %v", c.name(), err)
	}
	ev, err := p.Next()
	if err != nil || ev.Data == nil {
		p.Close()
		t.Fatalf("start %s: want output first, got %+v, %v", c.name(), ev, err)
	}
	return p, string(ev.Data.Stdout) + string(ev.Data.PTY)
}

func processNotStarted(t *testing.T, b *Box) {
	dir := b.Dir(t)
	b.MustSh(t, "echo 'echo hello' > not-executable; chmod 644 not-executable")
	for name, c := range map[string]Cmd{
		"no such program":      {Argv: []string{"/no/such/program"}},
		"not in PATH":          {Argv: []string{"no-such-program-anywhere"}},
		"not executable":       {Argv: []string{dir + "/not-executable"}},
		"a directory":          {Argv: []string{dir}},
		"no such directory":    {Argv: []string{"/bin/echo"}, Dir: "/no/such/directory"},
		"no such user":         {Argv: []string{"/bin/echo"}, User: "nobody-of-that-name"},
		"NUL in an argument":   {Argv: []string{"/bin/echo", "a\x00b"}},
		"NUL in a variable":    {Argv: []string{"/bin/echo"}, Env: map[string]string{"A": "b\x00c"}},
		"equal sign in a name": {Argv: []string{"/bin/echo"}, Env: map[string]string{"A=B": "c"}},
	} {
		r, err := b.Run(step(t), c)
		switch kind := sandbox.KindOf(err); {
		case err == nil:
			if r.End.Cause == "" || r.End.Status == guestapi.EndOK {
				t.Errorf("%s: want an error, or an end event with Error set; got %v", name, r)
			}
		case kind == sandbox.Internal || kind == sandbox.Unavailable:
			t.Errorf("%s: want an error of the caller's (such as %s); got kind %s: %v", name, sandbox.Invalid, kind, err)
		}
	}
	b.Answers(t, "after programs that could not be started")
}

func processStdin(t *testing.T, b *Box) {
	if r := b.MustRun(t, Cmd{Argv: []string{"cat"}}); r.Stdout != "" || r.End.Code() != 0 {
		t.Errorf("a program without input must read end of file at once; got %v", r)
	}
	if r := b.MustRun(t, Cmd{Argv: []string{"cat"}, Stdin: []byte{}}); r.Stdout != "" || r.End.Code() != 0 {
		t.Errorf("CloseStdin must give end of file; got %v", r)
	}
	input := bytes.Repeat([]byte("line with \x00 and \xff\n"), 100_000) // some MB, more than a pipe's buffer
	r := b.MustRun(t, Cmd{Argv: []string{"cat"}, Stdin: input})
	if r.Stdout != string(input) {
		t.Errorf("input of %d bytes through cat gives %d bytes, not the same", len(input), len(r.Stdout))
	}
	if r.inputFailed != nil {
		t.Errorf("input of %d bytes: %v", len(input), r.inputFailed)
	}

	// A program that never reads its input must still end, and must not block
	// others.
	r = b.MustRun(t, Cmd{Shell: "exit 4", Stdin: input})
	if r.End.Code() != 4 {
		t.Errorf("a program that ends without reading its input: want exit code 4, got %v", r)
	}

	p, err := b.Start(step(t), Cmd{Shell: "while read -r l; do echo \"<$l>\"; done; echo eof", Open: true})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	sel := guestapi.ProcessSelector{PID: p.PID()}
	for _, line := range []string{"one", "two"} {
		if err := b.Client.SendInput(step(t), sel, []byte(line+"\n"), false); err != nil {
			t.Fatalf("SendInput: %v", err)
		}
		ev, err := p.Next()
		if err != nil || ev.Data == nil || string(ev.Data.Stdout) != "<"+line+">\n" {
			t.Fatalf("input must reach a running program at once: sent %q, got %+v, %v", line, ev, err)
		}
	}
	if err := b.Client.CloseStdin(step(t), sel); err != nil {
		t.Fatalf("CloseStdin: %v", err)
	}
	if r, err := Collect(p, nil); err != nil || r.Stdout != "eof\n" {
		t.Errorf("after CloseStdin: want %q, got %v, %v", "eof\n", r, err)
	}
}

// processReopened has programs open their streams by name, as scripts do.
func processReopened(t *testing.T, b *Box) {
	for _, user := range []string{sandbox.User, sandbox.Root} {
		r := b.MustRun(t, Cmd{
			Shell: "cat /dev/stdin > /dev/stdout && echo error > /dev/stderr",
			User:  user,
			Stdin: []byte("input"),
		})
		if r.Stdout != "input" || r.Stderr != "error\n" {
			t.Errorf("%s: /dev/stdin, stdout and stderr opened by name: %v", user, r)
		}
	}
}

func processEnvironment(t *testing.T, s *suite) {
	secret := "secret-" + sandbox.NewID()
	t.Setenv("GLOVEBOX_DRIVERTEST_SECRET", secret)
	t.Setenv("GLOVEBOX_TOKEN", secret)
	b := s.newBox(t) // the driver's processes may inherit the secret
	r := b.MustRun(t, Cmd{Argv: []string{"env"}, Env: map[string]string{"ASKED": "a b=c\nd", "HOME": "/elsewhere"}})
	if strings.Contains(r.Stdout, secret) {
		t.Errorf("a variable of the host's environment is visible in the box:\n%s", r.Stdout)
	}
	for _, want := range []string{"ASKED=a b=c\nd\n", "HOME=/elsewhere\n", "PATH="} {
		if !strings.Contains(r.Stdout, want) {
			t.Errorf("the environment lacks %q:\n%s", want, r.Stdout)
		}
	}
	for line := range strings.Lines(b.MustSh(t, "env")) {
		name, _, _ := strings.Cut(line, "=")
		known := []string{"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TERM", "PWD", "OLDPWD", "SHLVL", "_", "TMPDIR", "HOSTNAME", "TZ"}
		if _, host := os.LookupEnv(name); host && !slices.Contains(known, name) {
			t.Errorf("the environment is not clean: it has %s, which the host has too", strings.TrimSpace(line))
		}
		if !slices.Contains(known, name) && !strings.HasPrefix(name, "PYTHON") {
			t.Logf("the environment has %s", strings.TrimSpace(line))
		}
	}
	for _, name := range []string{"HOME", "PATH"} {
		if b.MustSh(t, "echo \"$"+name+"\"") == "\n" {
			t.Errorf("the environment lacks %s", name)
		}
	}
}

// processThreads checks that OMP_NUM_THREADS gives programs the limit on CPUs.
// Otherwise they start one thread per visible CPU, and the surplus threads spin.
func processThreads(t *testing.T, st *site, b *Box) {
	st.s.isolated(t, st) // without isolation there is no limit
	spec := st.s.h.Spec()
	enforced(t, spec, sandbox.ControlCPU)
	want := fmt.Sprintf("OMP_NUM_THREADS=%d\n", int(math.Ceil(spec.Limits.CPUs)))
	if out := b.MustSh(t, "env"); !strings.Contains(out, want) || strings.Contains(out, "GOMAXPROCS=") {
		t.Errorf("the environment lacks %q, or has the guest's GOMAXPROCS:\n%s", want, out)
	}
	asked := Cmd{Argv: []string{"env"}, Env: map[string]string{"OMP_NUM_THREADS": "7"}}
	if out := b.MustRun(t, asked).Stdout; !strings.Contains(out, "OMP_NUM_THREADS=7\n") {
		t.Errorf("OMP_NUM_THREADS cannot be set:\n%s", out)
	}
}

func processUser(t *testing.T, st *site, b *Box) {
	st.s.isolated(t, st) // without isolation all programs run as the caller
	one := st.Info().Features.OneUser
	root := struct{ user, uid, name string }{sandbox.Root, "0", sandbox.Root}
	if one { // programs that are to run as root do so as this user, too
		root.uid, root.name = fmt.Sprint(sandbox.UserUID), sandbox.User
	}
	for _, c := range []struct{ user, uid, name string }{
		{"", fmt.Sprint(sandbox.UserUID), sandbox.User},
		{sandbox.User, fmt.Sprint(sandbox.UserUID), sandbox.User},
		root,
	} {
		r := b.MustRun(t, Cmd{Shell: "id -u; id -g; id -un; id -G; echo ~", User: c.user})
		lines := strings.Split(r.Stdout, "\n")
		if len(lines) < 5 || lines[0] != c.uid || lines[1] != c.uid || lines[2] != c.name || lines[3] != c.uid {
			t.Errorf("as user %q: want uid, gid and only group %s, and name %s; got %v", c.user, c.uid, c.name, r)
		}
	}
	if r := b.MustRun(t, Sh("echo evil >> /etc/passwd")); r.End.Code() == 0 {
		t.Errorf("user code changed /etc/passwd: %v", r)
	}
	if one {
		return // nothing in the box is another user's, not even the guest
	}
	b.MustRoot(t, "mkdir -p /tmp/roots && echo private > /tmp/roots/file && chmod 700 /tmp/roots")
	if r := b.MustRun(t, Sh("cat /tmp/roots/file; echo x > /etc/passwd; kill -9 1")); strings.Contains(r.Stdout, "private") {
		t.Errorf("user code read a file that only sandbox-root may: %v", r)
	}
	b.Answers(t, "after user code tried to kill the guest")
}

func processDir(t *testing.T, st *site, b *Box) {
	dir := b.Dir(t)
	if st.Info().Isolates && dir != sandbox.WorkDir {
		t.Errorf("programs start in %s, want %s", dir, sandbox.WorkDir)
	}
	b.MustSh(t, "mkdir -p 'sub dir' && touch 'sub dir/here'")
	r := b.MustRun(t, Cmd{Shell: "pwd; ls; echo $PWD", Dir: dir + "/sub dir"})
	if want := dir + "/sub dir\nhere\n" + dir + "/sub dir\n"; r.Stdout != want {
		t.Errorf("working directory: got %q, want %q", r.Stdout, want)
	}
}

func processList(t *testing.T, b *Box) {
	p, _ := b.startReady(t, Cmd{Shell: "echo ready; cat", Open: true, Tag: "listed", Env: map[string]string{"SECRET": "hidden"}})
	defer p.Close()
	ps, err := b.Client.Processes(step(t))
	if err != nil {
		t.Fatalf("Processes: %v", err)
	}
	i := slices.IndexFunc(ps, func(i guestapi.ProcessInfo) bool { return i.PID == p.PID() })
	if i < 0 {
		t.Fatalf("Processes lacks the running process %d: %+v", p.PID(), ps)
	}
	if ps[i].Tag != "listed" || ps[i].Config.Cmd != "/bin/sh" {
		t.Errorf("Processes gives %+v, want tag listed and command /bin/sh", ps[i])
	}
	if _, err := b.Start(step(t), Cmd{Shell: "exit", Tag: "listed"}); !errors.Is(err, sandbox.Conflict) && !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a second process of the same tag: want it refused with %s, got %v", sandbox.Conflict, err)
	}
	if err := b.Client.CloseStdin(step(t), guestapi.ProcessSelector{Tag: "listed"}); err != nil {
		t.Fatalf("CloseStdin by tag: %v", err)
	}
	if r, err := Collect(p, nil); err != nil || r.End.Code() != 0 {
		t.Fatalf("the process ended with %v, %v", r, err)
	}
	eventually(t, "the list of processes still has one that ended and was taken", func() bool {
		ps, err := b.Client.Processes(step(t))
		return err == nil && !slices.ContainsFunc(ps, func(i guestapi.ProcessInfo) bool { return i.Tag == "listed" })
	})
}

func processConnect(t *testing.T, b *Box) {
	p, _ := b.startReady(t, Cmd{Shell: "echo ready; read -r l; echo \"$l\"; exit 5", Open: true, Tag: "shared"})
	defer p.Close()
	q, err := b.Client.Connect(step(t), guestapi.ProcessSelector{Tag: "shared"})
	if err != nil {
		t.Fatalf("Connect to a running process: %v", err)
	}
	defer q.Close()
	if q.PID() != p.PID() {
		t.Errorf("Connect: the process is %d, want %d", q.PID(), p.PID())
	}
	if err := b.Client.SendInput(step(t), guestapi.ProcessSelector{PID: p.PID()}, []byte("news\n"), false); err != nil {
		t.Fatal(err)
	}
	r, err := Collect(q, nil)
	if err != nil || !strings.Contains(r.Stdout, "news\n") || r.End.Code() != 5 {
		t.Errorf("the connected stream: want news and exit code 5, got %v, %v", r, err)
	}
	if _, err := b.Client.Connect(step(t), guestapi.ProcessSelector{Tag: "no such tag"}); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("Connect to no process: got %v, want kind %s", err, sandbox.NotFound)
	}
}

// processKeep breaks the stream of a process. The process then writes and ends,
// and the test reads the rest by a new stream.
func processKeep(t *testing.T, b *Box) {
	b.MustSh(t, "rm -f go")
	p, first := b.startReady(t, Cmd{
		Shell: "echo before; while [ ! -e go ]; do sleep 0.02; done; seq 1 5000; echo after >&2; exit 6",
		Tag:   "kept", Keep: true,
	})
	if first != "before\n" {
		t.Fatalf("first output is %q", first)
	}
	if err := p.Close(); err != nil {
		t.Errorf("Process.Close: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // the guest detects the broken stream
	b.MustSh(t, "touch go; sleep 0.5")
	q, err := b.Client.Connect(step(t), guestapi.ProcessSelector{Tag: "kept"})
	if err != nil {
		t.Fatalf("Connect to a process that ended with Keep, whose end nobody took: %v", err)
	}
	defer q.Close()
	r, err := Collect(q, nil)
	if err != nil || r.Stdout != numbers(5000) || r.Stderr != "after\n" || r.End.Code() != 6 {
		t.Errorf("Keep must lose nothing while no stream is attached: want numbers to 5000, after, exit code 6; got %v, %v", r, err)
	}
	processSentAgain(t, b)
	// The guest forgets the process once it has sent the end, which may be after
	// the client received it.
	eventually(t, "Connect after the end was taken does not say that there is no such process", func() bool {
		late, err := b.Client.Connect(step(t), guestapi.ProcessSelector{Tag: "kept"})
		if err == nil {
			late.Close()
		}
		return errors.Is(err, sandbox.NotFound)
	})
}

// processSentAgain reads output again that an earlier stream has sent. A server
// does so when it replaces a server that died before it stored the output.
func processSentAgain(t *testing.T, b *Box) {
	b.MustSh(t, "rm -f go")
	p, first := b.startReady(t, Cmd{Shell: "echo before; while [ ! -e go ]; do sleep 0.02; done; echo after", Tag: "again", Keep: true})
	if err := p.Close(); err != nil {
		t.Errorf("Process.Close: %v", err)
	}
	time.Sleep(200 * time.Millisecond) // the guest detects the broken stream
	sel := guestapi.ProcessSelector{Tag: "again"}
	for _, have := range []int{0, 3, len(first)} {
		q, err := b.Client.Reconnect(step(t), sel, &guestapi.OutputCounts{Stdout: int64(have)})
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for got != first[have:] {
			ev, err := q.Next()
			if err != nil || ev.End != nil {
				t.Fatalf("with %d bytes: %q, then %+v, %v; want %q", have, got, ev, err, first[have:])
			}
			if ev.Data != nil {
				got += string(ev.Data.Stdout)
			}
		}
		if have == len(first) {
			b.MustSh(t, "touch go")
			if r, err := Collect(q, nil); err != nil || r.Stdout != "after\n" {
				t.Errorf("with all that was sent: %v, %v", r, err)
			}
		}
		q.Close()
		time.Sleep(200 * time.Millisecond)
	}
}

func numbers(n int) string {
	var sb strings.Builder
	for i := range n {
		fmt.Fprintln(&sb, i+1)
	}
	return sb.String()
}

func processTerminal(t *testing.T, b *Box) {
	size := &guestapi.PTYSize{Cols: 91, Rows: 17}
	p, first := b.startReady(t, Cmd{
		Shell: "test -t 0 && test -t 1 && echo terminal; stty size; read -r l; stty size; echo \"<$l>\"",
		PTY:   size, Env: map[string]string{"TERM": "xterm"},
	})
	defer p.Close()
	seen := func(text string) {
		t.Helper()
		for !strings.Contains(first, text) {
			ev, err := p.Next()
			if err != nil || ev.Data == nil {
				t.Fatalf("waiting for %q on the terminal: %+v, %v; so far %q", text, ev, err, first)
			}
			first += string(ev.Data.PTY)
		}
	}
	seen("terminal\r\n")
	seen("17 91\r\n")
	sel := guestapi.ProcessSelector{PID: p.PID()}
	if err := b.Client.Resize(step(t), sel, guestapi.PTYSize{Cols: 120, Rows: 40}); err != nil {
		t.Fatalf("Resize: %v", err)
	}
	if err := b.Client.SendInput(step(t), sel, []byte("typed\n"), true); err != nil {
		t.Fatalf("SendInput to a terminal: %v", err)
	}
	seen("40 120\r\n")
	seen("<typed>\r\n")
	if r, err := Collect(p, nil); err != nil || r.End.Code() != 0 {
		t.Errorf("the end of a terminal's process: %v, %v", r, err)
	}
	// A change of size tells the program in the foreground, which has a process group of
	// its own under a shell with job control. The same size again tells nothing.
	p3, told := b.startReady(t, Cmd{
		Shell: `set -m; sh -c 'trap "echo told; stty size; exit 7" WINCH; echo ready; while :; do sleep 0.05; done'; echo "ended $?"`,
		PTY:   size,
	})
	defer p3.Close()
	for _, rows := range []uint32{17, 17, 29} {
		if err := b.Client.Resize(step(t), guestapi.ProcessSelector{PID: p3.PID()}, guestapi.PTYSize{Cols: 91, Rows: rows}); err != nil {
			t.Fatalf("Resize: %v", err)
		}
	}
	r, err := Collect(p3, nil)
	if told += r.PTY; err != nil || !strings.HasSuffix(told, "told\r\n29 91\r\nended 7\r\n") {
		t.Errorf("a program whose terminal changes its size prints %q, and then %v", told, err)
	}
	// Interrupt by the terminal's own key, until it has an effect: some shells
	// lose an interrupt while they start a program.
	p2, _ := b.startReady(t, Cmd{Shell: "echo ready; sleep 600", PTY: size})
	defer p2.Close()
	pressed, release := context.WithCancel(t.Context())
	defer release()
	go func() {
		for pressed.Err() == nil {
			b.Client.SendInput(pressed, guestapi.ProcessSelector{PID: p2.PID()}, []byte{3}, true) //nolint:errcheck // it may have ended
			time.Sleep(100 * time.Millisecond)
		}
	}()
	if r, err := Collect(p2, nil); err != nil || r.End.Status == guestapi.EndOK {
		t.Errorf("the interrupt key must end the program: %v, %v", r, err)
	}
}

// eventually fails the test if ok does not return true within settleTime.
func eventually(t testing.TB, failure string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(settleTime); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("after %v: %s", settleTime, failure)
			return
		}
	}
}

// broken reports whether err is the error of a stream that broke off.
func broken(err error) bool {
	return errors.Is(err, sandbox.Unavailable) && !errors.Is(err, io.EOF)
}

// sortedKeys returns the keys of m in order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
