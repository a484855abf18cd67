package drivertest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// planted is a file of the host that no box may read.
type planted struct{ path, secret string }

// hostFile creates a planted file in a directory of the host.
func hostFile(t testing.TB, dir string) planted {
	t.Helper()
	p := planted{filepath.Join(dir, "drivertest-"+sandbox.NewID()), "secret-" + sandbox.NewID()}
	if err := os.WriteFile(p.path, []byte(p.secret), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(p.path) })
	return p
}

// hostProcess starts a process on the host and returns its marker.
func hostProcess(t testing.TB) string {
	t.Helper()
	mark := marker()
	cmd := exec.Command("sleep", mark)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return mark
}

// mustBeSealed stops the test unless the box is isolated: the programs that
// follow would harm the host.
func (b *Box) mustBeSealed(t testing.TB) {
	t.Helper()
	mark, file := hostProcess(t), hostFile(t, os.TempDir())
	if n := b.sleepers(t, mark); n != 0 {
		t.Fatal("processes of the host are visible in the box")
	}
	r := b.MustRun(t, Cmd{Argv: []string{"cat", file.path}, User: sandbox.Root})
	if strings.Contains(r.Stdout, file.secret) {
		t.Fatal("files of the host are visible in the box")
	}
}

// testSeal checks that programs in a box cannot see or reach the host.
func testSeal(t *testing.T, s *suite) {
	st := s.open(t)
	s.isolated(t, st)
	mark := hostProcess(t)
	secret := "secret-" + sandbox.NewID()
	t.Setenv("GLOVEBOX_DRIVERTEST_SECRET", secret)
	st = s.open(t) // again, with the secret in the environment
	b := st.box(t)
	t.Run("Processes", func(t *testing.T) {
		if n := b.sleepers(t, mark); n != 0 {
			t.Errorf("a process of the host is visible")
		}
		if n := len(strings.Fields(b.MustRoot(t, "ls -d /proc/[0-9]*"))); n > 20 {
			t.Errorf("%d processes are visible in a box that runs one", n)
		}
	})
	t.Run("Environment", func(t *testing.T) {
		if out := b.MustRun(t, Cmd{Shell: "cat /proc/[0-9]*/environ", User: sandbox.Root}).Stdout; strings.Contains(out, secret) {
			t.Error("a variable of the host's environment is visible in a process of the box")
		}
	})
	t.Run("Files", func(t *testing.T) { sealFiles(t, st, b) })
	t.Run("Network", func(t *testing.T) { sealNetwork(t, s, b) })
	t.Run("Privileges", func(t *testing.T) { sealPrivileges(t, st, b) })
	t.Run("Guest", func(t *testing.T) { sealGuest(t, s, b) })
	t.Run("Neighbours", func(t *testing.T) { sealNeighbours(t, st, b) })
	t.Run("KillAll", func(t *testing.T) { sealKillAll(t, st) })
}

func sealFiles(t *testing.T, st *site, b *Box) {
	candidates := []string{
		os.TempDir(), st.dir, "/root", "/home", "/var/log", "/var/tmp", "/var/lib", "/run", "/srv", "/mnt", "/opt", "/etc",
	}
	if home, err := os.UserHomeDir(); err == nil {
		candidates = append(candidates, home)
	}
	if wd, err := os.Getwd(); err == nil {
		candidates = append(candidates, wd)
	}
	var places []string
	for _, dir := range candidates {
		if f, err := os.CreateTemp(dir, ".drivertest*"); err == nil { // directories that this user can write to
			f.Close()
			os.Remove(f.Name())
			places = append(places, dir)
		}
	}
	for _, dir := range places {
		p := hostFile(t, dir)
		for _, path := range []string{p.path, "/proc/1/root" + p.path, "/proc/1/cwd/" + filepath.Base(p.path)} {
			if r := b.MustRun(t, Cmd{Argv: []string{"cat", path}, User: sandbox.Root}); strings.Contains(r.Stdout, p.secret) {
				t.Errorf("a file in %s of the host is readable in the box as %s", dir, path)
			}
		}
	}
	t.Logf("planted files in %q", places)
	for _, path := range []string{"/etc/shadow", "/etc/gshadow", "/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key"} {
		host, err := os.ReadFile(path)
		if err != nil || len(strings.TrimSpace(string(host))) == 0 {
			continue
		}
		if r := b.MustRun(t, Cmd{Argv: []string{"cat", path}, User: sandbox.Root}); r.Stdout == string(host) {
			t.Errorf("the host's %s is readable in the box", path)
		}
	}
	if env, err := os.ReadFile("/etc/environment"); err == nil && len(env) > 0 {
		if r := b.MustRun(t, Sh("cat /etc/environment")); r.Stdout == string(env) {
			t.Error("the host's /etc/environment is readable in the box")
		}
	}
	// Files that are written in a box stay in the box.
	name := "drivertest-" + sandbox.NewID()
	for _, dir := range []string{"/usr", "/usr/bin", "/bin", "/lib", "/etc", "/tmp", "/var/tmp", "/", "/root", "/dev/shm", "/home"} {
		b.MustRun(t, Cmd{Shell: "echo x > '" + dir + "/" + name + "'", User: sandbox.Root})
		host := filepath.Join(dir, name)
		if _, err := os.Lstat(host); err == nil {
			os.Remove(host)
			t.Errorf("a file that was written in the box is on the host: %s", host)
		}
	}
}

func sealNetwork(t *testing.T, s *suite, b *Box) {
	enforced(t, b.Spec, sandbox.ControlNetwork)
	devices := b.MustSh(t, "tail -n +3 /proc/net/dev | cut -d: -f1")
	for _, name := range strings.Fields(devices) {
		if name != "lo" {
			t.Errorf("network none: the box has the interface %s", name)
		}
	}
	if s.h.Python == "" {
		return
	}
	// Listeners on the host: on every address, and on an abstract socket.
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := "@drivertest-" + sandbox.NewID()
	u, err := net.Listen("unix", name)
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	targets := []string{"127.0.0.1", "10.0.0.1", "169.254.169.254", "1.1.1.1"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if ip, ok := a.(*net.IPNet); ok && ip.IP.To4() != nil {
			targets = append(targets, ip.IP.String())
		}
	}
	port := l.Addr().(*net.TCPAddr).Port
	program := fmt.Sprintf(`
import socket
for ip in %s.split():
    s = socket.socket(); s.settimeout(2)
    try:
        s.connect((ip, %d)); print("reached", ip)
    except OSError: pass
    try:
        u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(1); u.sendto(b"x", (ip, 53)); u.recv(1); print("answered", ip)
    except OSError: pass
for where in (%q,):
    s = socket.socket(socket.AF_UNIX)
    try:
        s.connect("\0" + where[1:]); print("reached", where)
    except OSError: pass
# Its own loopback must work.
l = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(l.getsockname(), 5); print("own loopback")
`, strconv.Quote(strings.Join(targets, " ")), port, name)
	for _, user := range []string{sandbox.User, sandbox.Root} {
		c := Python(s.h.Python, program)
		c.User = user
		if r := b.MustRun(t, c); r.Stdout != "own loopback\n" || r.End.Code() != 0 {
			t.Errorf("network none, as %s: want nothing reached but the box's own loopback; got %v", user, r)
		}
	}
	if r := b.MustRun(t, Sh("cat /etc/resolv.conf")); strings.Contains(r.Stdout, "nameserver") {
		if host, err := os.ReadFile("/etc/resolv.conf"); err == nil && string(host) == r.Stdout {
			t.Error("the host's /etc/resolv.conf is in the box")
		}
	}
}

func sealPrivileges(t *testing.T, st *site, b *Box) {
	status := b.MustSh(t, "cat /proc/self/status")
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch name {
		case "CapEff", "CapPrm", "CapInh", "CapAmb":
			if strings.Trim(value, "0") != "" {
				t.Errorf("user code has capabilities: %s is %s", name, value)
			}
		case "Uid", "Gid":
			for _, id := range strings.Fields(value) {
				if id != strconv.Itoa(sandbox.UserUID) {
					t.Errorf("user code runs with %s %s, want only %d", name, value, sandbox.UserUID)
				}
			}
		case "Groups":
			if value != "" && value != strconv.Itoa(sandbox.UserUID) {
				t.Errorf("user code has the groups %s", value)
			}
		}
	}
	scripts := []string{"mount -t tmpfs none /mnt", "chroot / true", "mknod /tmp/disk b 8 0 && head -c 1 /tmp/disk", "hostname evil", "date -s 2000-01-01"}
	if !st.Info().Features.OneUser { // its programs may end their box: see sealKillAll
		scripts = append(scripts, "kill -9 1")
	}
	for _, script := range scripts {
		if r := b.MustRun(t, Sh(script)); r.End.Code() == 0 {
			t.Errorf("user code may %q", script)
		}
	}
	if r := b.MustRun(t, Sh("find /dev -type b; ls /dev/kvm /dev/mem /dev/kmsg /dev/sd* /dev/vd* /dev/loop* 2>/dev/null")); r.Stdout != "" {
		t.Errorf("devices of the host are in the box: %q", r.Stdout)
	}
	b.Answers(t, "after user code tried what only a host's root may")
}

// tracePID1 is a program that tries to trace PID 1 and prints the results.
const tracePID1 = `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
PTRACE_SEIZE = 0x4206
for request in (16, PTRACE_SEIZE):  # and PTRACE_ATTACH
    print(libc.ptrace(request, 1, 0, 0), os.strerror(ctypes.get_errno()))
`

// sealGuest checks that sandbox-root cannot trace the guest.
func sealGuest(t *testing.T, s *suite, b *Box) {
	s.python(t)
	c := Python(s.h.Python, tracePID1)
	c.User = sandbox.Root
	if r := b.MustRun(t, c); r.Stdout != "-1 Operation not permitted\n-1 Operation not permitted\n" {
		t.Errorf("sandbox-root traces the guest: %v", r)
	}
	b.Answers(t, "after sandbox-root tried to trace the guest")
}

// sealNeighbours checks that boxes cannot see each other.
func sealNeighbours(t *testing.T, st *site, b *Box) {
	other := st.box(t)
	mark := marker()
	p, _ := other.startReady(t, Sh("echo on; sleep "+mark))
	defer p.Close()
	eventually(t, "a box does not see a process of its own", func() bool { return other.sleepers(t, mark) == 1 })
	if n := b.sleepers(t, mark); n != 0 {
		t.Error("a box sees a process of another box")
	}
	secret := "secret-" + sandbox.NewID()
	other.MustRun(t, Cmd{Shell: "for d in . /tmp /dev/shm /var/tmp; do echo $S > $d/shared; chmod 666 $d/shared; done", Env: map[string]string{"S": secret}})
	if r := b.MustRun(t, Cmd{Shell: "cat ./shared /tmp/shared /dev/shm/shared /var/tmp/shared", User: sandbox.Root}); strings.Contains(r.Stdout, secret) {
		t.Error("a box reads a file of another box")
	}
}

// sealKillAll has code in a box kill every process that it can.
func sealKillAll(t *testing.T, st *site) {
	b, neighbour := st.box(t), st.box(t)
	b.mustBeSealed(t)
	mark := hostProcess(t)
	if !st.Info().Features.OneUser {
		r, err := b.Run(step(t), Sh("echo go; kill -9 -1; kill -9 1; sleep 1; echo still here"))
		if err != nil {
			t.Errorf("user code that kills all it can must not harm the guest: %v", err)
		}
		t.Logf("as user: %v", r)
		b.Answers(t, "after user code killed all it could")
	}
	// Sandbox-root may harm its own guest, but then the box must return ErrGone.
	ctx := step(t)
	if r, err := b.Run(ctx, Cmd{Shell: "kill -9 -1; kill -9 1; echo tried", User: sandbox.Root, Timeout: 5 * time.Second}); err != nil && !broken(err) {
		t.Errorf("sandbox-root that kills all it can: %v, %v", err, r)
	}
	time.Sleep(200 * time.Millisecond)
	b.answersOrGone(t, "after sandbox-root killed all it could")
	neighbour.Answers(t, "after sandbox-root of another box killed all it could")
	if out, err := exec.Command("pgrep", "-f", "^sleep "+mark).Output(); err != nil || len(out) == 0 {
		t.Errorf("a process of the host was killed from a box: pgrep finds %q, %v", out, err)
	}
}
