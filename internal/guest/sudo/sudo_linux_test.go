package sudo_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A box is a guest with the command.
type box struct {
	*guesttest.Host
	dir string
}

// newBox starts a guest, and has a client of E2B's protocol use it.
func newBox(t *testing.T) *box {
	t.Helper()
	dir, err := os.MkdirTemp("", "sudo")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	b := &box{guesttest.New(t, "--sudo", dir, "--sudo-socket", filepath.Join(dir, guesttest.SudoSocket)), dir}
	if _, err := os.Lstat(b.command()); !os.IsNotExist(err) {
		t.Fatalf("before a client of E2B's protocol there is a command: %v", err)
	}
	guesttest.NewRawClient(t, b.Host).Post(guestapi.ProcList, guestapi.ContentTypeUnary, "{}")
	target, err := os.Readlink(b.command())
	self, serr := os.Executable()
	if err != nil || serr != nil || target != self {
		t.Fatalf("the command is a link to %q, %v; want %q", target, err, self)
	}
	// The user may be unable to reach the program of this test.
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(b.command()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.command(), program, 0o755); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *box) command() string { return filepath.Join(b.dir, "sudo") }

// sh returns the request to run a script in which sudo is the command.
func (b *box) sh(script string) *guestapi.StartRequest {
	req := guesttest.Sh(strings.ReplaceAll(script, "sudo ", b.command()+" "))
	req.Process.Envs = map[string]string{"MINE": "1", "LC_TIME": "C", "https_proxy": "http://p"}
	return req
}

func (b *box) run(script string) guesttest.Result {
	b.T.Helper()
	return guesttest.Collect(b.T, b.Begin(b.sh(script), guestapi.StartOptions{}))
}

func TestCommand(t *testing.T) {
	guesttest.NeedRoot(t)
	b := newBox(t)
	nobody := "65534"
	for script, want := range map[string]string{
		"id -u; sudo id -u":                                                "1000\n0\n",
		"sudo -n -- id -ru":                                                "0\n",
		"sudo -u nobody id -u":                                             nobody + "\n",
		"sudo -u#" + nobody + " id -u":                                     nobody + "\n",
		"sudo --user=nobody id -u":                                         nobody + "\n",
		"sudo -g nogroup id -g":                                            nobody + "\n",
		"sudo sudo -u nobody id -u":                                        nobody + "\n",
		"echo in | sudo tr a-z A-Z | cat":                                  "IN\n",
		"sudo sh -c 'echo err >&2' 2>&1 >/dev/null":                        "err\n",
		"sudo sh -c 'exit 7'; echo $?":                                     "7\n",
		"sudo sh -c 'kill -TERM $$'; echo $?":                              "143\n",
		"sudo true; sudo false; echo $?":                                   "1\n",
		"sudo A=1 B='x y' sh -c 'echo $A $B'":                              "1 x y\n",
		"sudo sh -c 'echo [$MINE] $LC_TIME $https_proxy'":                  "[] C http://p\n",
		"sudo -E sh -c 'echo $MINE'":                                       "1\n",
		"sudo --preserve-env=MINE,OTHER sh -c 'echo $MINE'":                "1\n",
		"sudo sh -c 'echo $HOME $USER $LOGNAME'":                           "/root root root\n",
		"sudo sh -c 'echo $SUDO_USER $SUDO_UID $SUDO_GID'":                 "user 1000 1000\n",
		"HOME=/mine sudo -E sh -c 'echo $HOME'":                            "/mine\n",
		"HOME=/mine sudo -EH sh -c 'echo $HOME'":                           "/root\n",
		"cd /usr; sudo pwd":                                                "/usr\n",
		"cd /usr; sudo -u nobody ./bin/id -u":                              nobody + "\n",
		"sudo -s 'echo a;' 'b' \"c\nd\" '$HOME' 2>&1 | wc -l":              "1\n",
		"sudo -i printf '%s.' 1 '2  3' '' '$HOME' && echo && sudo -i pwd":  "1.2  3../root.\n/root\n",
		"sudo -v; sudo -k; sudo -K; sudo -nv; echo $?":                     "0\n",
		"sudo -k id -u":                                                    "0\n",
		"sudo -l | tail -1":                                                "    (ALL : ALL) NOPASSWD: ALL\n",
		"sudo -V | wc -l":                                                  "1\n",
		"sudo -z id 2>&1 | head -1; sudo -z id 2>/dev/null || echo $?":     "sudo: unknown option -z\n1\n",
		"sudo --bad id 2>&1 | head -1":                                     "sudo: unknown option --bad\n",
		"sudo -u 2>&1 | head -1":                                           "sudo: option -u needs a value\n",
		"sudo 2>&1 | head -1":                                              "sudo: no command given\n",
		"sudo -u nobody-here id 2>&1; echo $?":                             "sudo: unknown user nobody-here\n1\n",
		"sudo no-such-command 2>&1; echo $?":                               "sudo: command not found: no-such-command\n1\n",
		"printf 'a\\377b' | xargs sudo printf %s | od -An -tx1":            " 61 ff 62\n",
		"sudo id -u <&-":                                                   "0\n",
		"env -i sudo id -u":                                                "0\n",
		"mkdir /tmp/gone$$; cd /tmp/gone$$; rmdir /tmp/gone$$; sudo id -u": "0\n",
		"grep -c . /proc/self/status >/dev/null; sudo grep NoNewPrivs /proc/self/status | wc -l": "1\n",
	} {
		if got := b.run(script); got.Stdout != want {
			t.Errorf("%s\nprints %q, %q; want %q", script, got.Stdout, got.Stderr, want)
		}
	}
}

// TestProtectedDir has another user start where it cannot enter.
func TestProtectedDir(t *testing.T) {
	guesttest.NeedRoot(t)
	b := newBox(t)
	dir := guesttest.UserDir(t, "")
	if got := b.run("cd " + dir + " && chmod 700 . && sudo -u nobody id -u"); got.Stdout != "65534\n" {
		t.Errorf("it prints %q, %q", got.Stdout, got.Stderr)
	}
}

// TestEndOfTheRun checks that a kill and a timeout of a run end what sudo began.
func TestEndOfTheRun(t *testing.T) {
	b := newBox(t)
	for name, script := range map[string]string{
		"plain":      "sudo sh -c 'echo ready; sleep 1000'",
		"background": "sudo sleep 1000 & sudo sh -c 'echo ready; sleep 1000'",
		"daemon":     "sudo sh -c '(setsid sleep 1000 >/dev/null 2>&1 &)'; echo ready; sleep 1000",
		"cleared":    "sudo env -i setsid -w sh -c 'sleep 1000 & echo ready; sleep 1000'",
		"nested":     "sudo sudo sh -c 'trap \"\" TERM HUP; echo ready; sleep 1000; true'",
		"unmarked":   "env -i setsid sudo sh -c 'echo ready; sleep 1000'",
	} {
		t.Run(name, func(t *testing.T) {
			neighbour := b.Begin(b.sh("sudo sh -c 'echo ready; exec sleep 2000'"), guestapi.StartOptions{})
			await(t, neighbour)
			before := len(b.Descendants())
			p := b.Begin(b.sh(script), guestapi.StartOptions{})
			await(t, p)
			if err := b.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if left := b.Descendants(); len(left) != before {
				t.Errorf("left are %+v", left)
			}
			if end := guesttest.Collect(t, p).End; end.Detail.Left != 0 || end.Detail.Signal != 9 {
				t.Errorf("end is %+v", end.Detail)
			}
			if err := b.Signal(t.Context(), guesttest.PIDOf(neighbour), guestapi.SIGKILL); err != nil {
				t.Fatal(err)
			}
			guesttest.Eventually(t, "nothing runs", func() bool { return len(b.Descendants()) == 0 })
		})
	}
}

func await(t *testing.T, p *guestapi.Events) {
	t.Helper()
	text := ""
	for !strings.Contains(text, "ready") {
		ev, err := p.Next()
		if err != nil || ev.End != nil {
			t.Fatalf("before it is ready: %+v, %v; %q", ev, err, text)
		}
		text += string(ev.Data.Stdout) + string(ev.Data.PTY) + string(ev.Data.Stderr)
	}
}

// TestNeighbour checks that the kill of a run spares what sudo began for another one.
func TestNeighbour(t *testing.T) {
	b := newBox(t)
	first := b.Begin(b.sh("sudo sh -c 'echo ready; exec sleep 1000'"), guestapi.StartOptions{})
	await(t, first)
	// The orphan has neither a marker nor a session of its own.
	second := b.Begin(b.sh("sudo sh -c '(env -i sleep 1001 &); echo ready; exec sleep 1002'"), guestapi.StartOptions{})
	await(t, second)
	guesttest.Eventually(t, "all sleep", func() bool { return b.Programs("sleep") == 3 })
	if err := b.Signal(t.Context(), guesttest.PIDOf(first), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if n := b.Programs("sleep"); n != 2 {
		t.Errorf("%d programs are left of the other run", n)
	}
	if err := b.Signal(t.Context(), guesttest.PIDOf(second), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if n := len(b.Descendants()); n != 0 {
		t.Errorf("%d processes are left", n)
	}
}

// TestLeftovers checks that the end of a run counts what sudo began and left.
func TestLeftovers(t *testing.T) {
	b := newBox(t)
	got := b.run("sudo sleep 1000 >/dev/null 2>&1 & sudo sh -c 'setsid sleep 1000 >/dev/null 2>&1 &'; while ! pgrep -f -x 'sleep 1000' >/dev/null; do :; done")
	if got.End.Detail.Left < 2 {
		t.Errorf("end is %+v", got.End.Detail)
	}
}

// TestUsage checks that the processor time of what sudo began is the run's.
func TestUsage(t *testing.T) {
	b := newBox(t)
	// 100 ticks of user time are a second.
	busy := "sudo sh -c 'while read -r line </proc/$$/stat && set -- $line && test ${14} -lt 30; do :; done'"
	if got := b.run(busy); got.End.Detail.CPUMillis < 300 {
		t.Errorf("%d ms, %q", got.End.Detail.CPUMillis, got.Stderr)
	}
}

// TestSignals checks that signals to the command arrive at the program, and that
// the program does not outlive the command.
func TestSignals(t *testing.T) {
	b := newBox(t)
	for name, script := range map[string]string{
		"caught": "exec sudo sh -c 'trap \"echo got; exit 5\" TERM; echo ready; while :; do sleep 0.01; done'",
		"deadly": "exec sudo sh -c 'echo ready; exec sleep 1000'",
	} {
		p := b.Begin(b.sh(script), guestapi.StartOptions{})
		await(t, p)
		if err := b.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGTERM); err != nil {
			t.Fatal(err)
		}
		got := guesttest.Collect(t, p)
		switch code := got.End.ExitCode; name {
		case "caught":
			if code == nil || *code != 5 || got.Stdout != "got\n" {
				t.Errorf("%s: %q, %+v", name, got.Stdout, got.End)
			}
		case "deadly":
			if code != nil || got.End.Detail.Signal != int(unix.SIGTERM) {
				t.Errorf("%s: %+v, %+v", name, got.End, got.End.Detail)
			}
		}
	}
	p := b.Begin(b.sh("exec sudo sh -c 'echo ready; exec sleep 1000'"), guestapi.StartOptions{})
	await(t, p)
	if err := unix.Kill(int(p.PID()), unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	guesttest.Collect(t, p)
	guesttest.Eventually(t, "the program has ended", func() bool { return len(b.Descendants()) == 0 })
}

// TestTerminal runs commands in a terminal.
func TestTerminal(t *testing.T) {
	guesttest.NeedRoot(t)
	b := newBox(t)
	start := func(script string) *guestapi.Events {
		req := b.sh(script)
		req.Stdin = nil
		req.PTY = &guestapi.PTY{Size: &guestapi.PTYSize{Cols: 91, Rows: 33}}
		return b.Begin(req, guestapi.StartOptions{})
	}
	for script, want := range map[string]string{
		"sudo sh -c 'test -t 0 && test -t 2 && echo 1; stty size; id -u'": "1\r\n33 91\r\n0\r\n",
		"sudo sh -c 'test -t 0 && test -t 2 && echo 1' | cat":             "1\r\n",
		"sudo true; sudo stty -a | grep -o ' echo '":                      " echo \r\n",
		"echo x | sudo cat":                          "x\r\n",
		"sudo echo y | cat":                          "y\r\n",
		"sudo sh -c 'ps -o stat= -p $$ | grep -o +'": "+\r\n",
	} {
		if got := guesttest.Collect(t, start(script)); got.PTY != want {
			t.Errorf("%s\nprints %q; want %q", script, got.PTY, want)
		}
	}
	p := start("sudo sh -c 'trap \"echo interrupted; exit 9\" INT; echo ready; while :; do sleep 0.05; done'; echo $?; stty -a | grep -o ' icanon'")
	await(t, p)
	if err := b.SendInput(t.Context(), guesttest.PIDOf(p), []byte{3}, true); err != nil {
		t.Fatal(err)
	}
	if got := guesttest.Collect(t, p); !strings.HasSuffix(got.PTY, "interrupted\r\n9\r\n icanon\r\n") {
		t.Errorf("after Ctrl-C: %q", got.PTY)
	}
	p = start("sudo sh -c 'trap \"stty size\" WINCH; echo ready; while ! read line; do :; done; echo got $line'")
	await(t, p)
	if err := b.Resize(t.Context(), guesttest.PIDOf(p), guestapi.PTYSize{Cols: 40, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	text := ""
	for !strings.Contains(text, "20 40") {
		ev, err := p.Next()
		if err != nil || ev.End != nil {
			t.Fatalf("%+v, %v, %q", ev, err, text)
		}
		text += string(ev.Data.PTY)
	}
	if err := b.SendInput(t.Context(), guesttest.PIDOf(p), []byte("words\n"), true); err != nil {
		t.Fatal(err)
	}
	if got := guesttest.Collect(t, p); !strings.Contains(got.PTY, "got words\r\n") {
		t.Errorf("input: %q", got.PTY)
	}
}

// TestMany runs many commands at once.
func TestMany(t *testing.T) {
	b := newBox(t)
	const n = 200
	got := b.run(fmt.Sprintf("i=0; while [ $i -lt %d ]; do sudo echo $i & i=$((i+1)); done; wait", n))
	if lines := strings.Fields(got.Stdout); len(lines) != n {
		t.Errorf("%d lines; %.2000q", len(lines), got.Stderr)
	}
}

// TestBounds sends the guest what the command does not.
func TestBounds(t *testing.T) {
	b := newBox(t)
	socket := filepath.Join(b.dir, guesttest.SudoSocket)
	files := b.OpenFiles()
	dial := func() int {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := unix.Connect(fd, &unix.SockaddrUnix{Name: socket}); err != nil {
			t.Fatal(err)
		}
		return fd
	}
	answer := func(fd int) string {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		text, err := io.ReadAll(f)
		if err != nil {
			return err.Error()
		}
		return string(text)
	}
	for name, c := range map[string]struct {
		fds  int
		body string
		want string
	}{
		"no descriptors":  {0, "", "received 0 or more"},
		"few descriptors": {3, "", "received 3 or more"},
		"many":            {200, "", "received 4 or more"},
		"too large":       {4, "\xff\xff\xff\xff", "larger than"},
		"no JSON":         {4, "\x00\x00\x00\x01{", "request: "},
		"no command":      {4, "\x00\x00\x00\x02{}", "no command given"},
		"bad terminal":    {4, frame(`{"args":"bHMA","terminal":7}`), "cannot be a terminal"},
		"many to keep":    {4, frame(`{"args":"bHMA","keep":"` + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte("A\x00"), 1001)) + `"}`), "more than 1000 variables"},
		"no user":         {4, frame(`{"args":"bHMA","user":"x y"}`), "unknown user"},
	} {
		fd := dial()
		var fds []int
		for range c.fds {
			fds = append(fds, 0)
		}
		if err := unix.Sendmsg(fd, []byte{0}, unix.UnixRights(fds...), nil, 0); err != nil {
			t.Fatal(err)
		}
		if c.body != "" {
			if _, err := unix.Write(fd, []byte(c.body)); err != nil {
				t.Fatal(err)
			}
		}
		if got := answer(fd); !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	guesttest.Eventually(t, "the guest has closed all", func() bool { return b.OpenFiles() <= files })
	// More connections than sessions.
	var open []int
	for range 300 {
		open = append(open, dial())
	}
	refused := make(chan string, 1)
	go func() { refused <- answer(open[299]) }()
	if got := <-refused; !strings.Contains(got, "256 commands") {
		t.Errorf("one too many: %q", got)
	}
	for _, fd := range open[:299] {
		unix.Close(fd)
	}
	guesttest.Eventually(t, "the guest has closed all", func() bool { return b.OpenFiles() <= files })
	if got := b.run("sudo echo well"); got.Stdout != "well\n" {
		t.Errorf("after that: %q, %q", got.Stdout, got.Stderr)
	}
}

func frame(body string) string {
	return string(binary.BigEndian.AppendUint32(nil, uint32(len(body)))) + body
}

// TestOwnCommand leaves a command of the image alone.
func TestOwnCommand(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "sudo")
	if err := os.WriteFile(own, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	h := guesttest.New(t, "--sudo", dir, "--sudo-socket", filepath.Join(dir, guesttest.SudoSocket))
	guesttest.NewRawClient(t, h).Post(guestapi.ProcList, guestapi.ContentTypeUnary, "{}")
	if text, err := os.ReadFile(own); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("it is %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(dir, guesttest.SudoSocket)); !os.IsNotExist(err) {
		t.Errorf("the socket: %v", err)
	}
}
