package drivertest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// attackTime is the timeout of an attack.
const attackTime = 15 * time.Second

// testHostile runs programs that attack the host. Each runs in a box with tight
// limits, beside a neighbour. Each must end as the contract says. The host must
// be unharmed, and the neighbour must answer.
func testHostile(t *testing.T, s *suite) {
	attacks := []struct {
		name    string
		limit   sandbox.ControlName // the limit that stops it, or ""
		python  bool
		command func(s *suite, spec *driver.Spec) Cmd
		check   func(a *attack, t *testing.T)
	}{
		{"MemoryBomb", sandbox.ControlMemory, true, memoryBomb, (*attack).wantMemory},
		{"MemoryBombShell", sandbox.ControlMemory, false, memoryBombShell, (*attack).wantMemory},
		{"MemoryBombInMany", sandbox.ControlMemory, true, memoryBombInMany, (*attack).wantMemory},
		{"MemoryPipes", sandbox.ControlMemory, true, memoryPipes, (*attack).wantStopped},
		{"MemoryFiles", sandbox.ControlMemory, false, memoryFiles, (*attack).wantStopped},
		{"ForkBomb", sandbox.ControlProcesses, false, forkBomb, (*attack).wantProcesses},
		{"ForkTree", sandbox.ControlProcesses, false, forkTree, (*attack).wantProcesses},
		{"ThreadBomb", sandbox.ControlProcesses, true, threadBomb, (*attack).wantProcesses},
		{"ForkUsers", sandbox.ControlProcesses, true, forkUsers, (*attack).wantProcessesOfAll},
		{"Orphans", "", false, orphans, (*attack).wantEnd},
		{"DiskBigFile", sandbox.ControlDisk, false, diskBigFile, (*attack).wantDisk},
		{"DiskSmallFiles", sandbox.ControlDisk, false, diskSmallFiles, (*attack).wantDisk},
		{"DiskEmptyFiles", sandbox.ControlDisk, false, diskEmptyFiles, (*attack).wantEnd},
		{"DeepDirectory", "", false, deepDirectory, (*attack).wantEnd},
		{"OutputFlood", "", false, outputFlood, (*attack).wantTimeout},
		{"Descriptors", "", true, descriptors, (*attack).wantEnd},
		{"Inotify", "", true, inotify, (*attack).wantEnd},
	}
	for _, a := range attacks {
		t.Run(a.name, func(t *testing.T) {
			if a.python {
				s.python(t)
			}
			st := s.open(t)
			s.isolated(t, st)
			spec := s.tight()
			if a.limit != "" {
				enforced(t, spec, a.limit)
			}
			x := newAttack(t, st, spec)
			x.run(t, a.command(s, spec))
			a.check(x, t)
			x.after(t)
		})
	}
	t.Run("Watchers", func(t *testing.T) { hostileWatchers(t, s) })
	t.Run("Connections", func(t *testing.T) { hostileConnections(t, s) })
}

// An attack is a hostile program with its box and a neighbour.
type attack struct {
	st           *site
	b, neighbour *Box
	r            Result
	err          error
}

func newAttack(t *testing.T, st *site, spec *driver.Spec) *attack {
	t.Helper()
	a := &attack{st: st, b: st.boxOf(t, spec), neighbour: st.box(t)}
	a.b.mustBeSealed(t)
	a.neighbour.Answers(t, "before")
	return a
}

// run runs the attack to its end. Meanwhile the neighbour must answer.
func (a *attack) run(t *testing.T, c Cmd) {
	t.Helper()
	c.Timeout = attackTime
	var out int64
	c.OnData = func(d *guestapi.DataEvent) {
		out += int64(len(d.Stdout) + len(d.Stderr))
		if len(a.r.Stdout) < 64<<10 {
			a.r.Stdout += string(d.Stdout)
		}
		if len(a.r.Stderr) < 64<<10 {
			a.r.Stderr += string(d.Stderr)
		}
	}
	heap := watchHeap()
	done := make(chan struct{})
	var r Result
	go func() {
		defer close(done)
		r, a.err = a.b.Run(step(t), c)
	}()
	var slowest time.Duration
	for waiting := true; waiting; {
		slowest = max(slowest, a.neighbour.answers(t, "while a neighbour attacks"))
		hostUnharmed(t, "while a box attacks")
		select {
		case <-done:
			waiting = false
		case <-time.After(500 * time.Millisecond):
		}
	}
	t.Logf("the neighbour answered and ran programs in %v at most", slowest.Round(time.Millisecond))
	r.Stdout, r.Stderr = a.r.Stdout, a.r.Stderr
	a.r = r
	heap.check(t, fmt.Sprintf("an attack that wrote %d KiB", out>>10), streamHeap)
	t.Logf("the attack ended after %v: %v, %v", r.Took.Round(time.Millisecond), a.err, r)
}

// after checks that the neighbour, the host and the box are unharmed, and
// destroys the box.
func (a *attack) after(t *testing.T) {
	t.Helper()
	a.neighbour.Answers(t, "after the attack")
	hostUnharmed(t, "after the attack")
	a.b.answersOrGone(t, "after the attack")
	began := time.Now()
	if err := a.b.Destroy(step(t)); err != nil {
		t.Errorf("Destroy after the attack: %v", err)
	}
	t.Logf("Destroy after the attack took %v", time.Since(began).Round(time.Millisecond))
	checkDestroyed(t, a.st, a.b.Box)
}

// answersOrGone checks that a box works or returns ErrGone. In any other state,
// the engine would not replace the box.
func (b *Box) answersOrGone(t testing.TB, when string) {
	t.Helper()
	var last error
	for deadline := time.Now().Add(settleTime); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		r, err := b.Run(step(t), Sh("echo alive"))
		if err == nil && r.Stdout == "alive\n" {
			t.Logf("%s: the box works", when)
			return
		}
		if last = err; err == nil {
			last = fmt.Errorf("a program gives %v", r)
			continue
		}
		conn, err := b.Dial(step(t))
		if driver.IsGone(err) {
			t.Logf("%s: the box is gone", when)
			return
		}
		if err == nil {
			conn.Close()
		}
	}
	t.Errorf("%s: the box neither works nor gives ErrGone: %v", when, last)
}

// hostUnharmed checks that this machine still has the resources that attacks
// exhaust.
func hostUnharmed(t testing.TB, when string) {
	t.Helper()
	began := time.Now()
	if err := exec.Command("true").Run(); err != nil {
		t.Errorf("%s: the host cannot start a process: %v", when, err)
	}
	f, err := os.CreateTemp("", "drivertest")
	if err != nil {
		t.Errorf("%s: the host cannot make a file: %v", when, err)
		return
	}
	if _, err := f.Write(make([]byte, 1<<20)); err != nil {
		t.Errorf("%s: the host cannot write a file: %v", when, err)
	}
	f.Close()
	os.Remove(f.Name())
	if err := hostInotify(); err != nil {
		t.Errorf("%s: the host cannot watch files: %v", when, err)
	}
	if took := time.Since(began); took > answerTime {
		t.Errorf("%s: the host takes %v to start a program and write a file", when, took)
	}
}

// incidents reads the box's incidents. They are zero if the driver does not
// report any.
func (a *attack) incidents(t *testing.T) driver.Incidents {
	t.Helper()
	in, ok, err := driver.ReadIncidents(step(t), a.b.Box)
	if err != nil {
		t.Errorf("Incidents after the attack: %v; it also answers shortly after the guest died", err)
	}
	if ok {
		t.Logf("incidents: %+v", in)
	}
	return in
}

// survived checks that the stream of the attack was not lost.
func (a *attack) survived(t *testing.T) {
	t.Helper()
	if a.err != nil {
		t.Errorf("the attack must end with an end event, its box unharmed: %v", a.err)
	}
}

func (a *attack) wantMemory(t *testing.T) {
	if strings.Contains(a.r.Stdout, "held") {
		t.Errorf("a program took twice the memory limit: %v", a.r)
	}
	if a.err != nil && !broken(a.err) {
		t.Errorf("want an end event, or the stream of a box that died: %v", a.err)
	}
	in := a.incidents(t)
	if !(a.err == nil && a.r.End.Detail.MemoryKill) && in.MemoryKills == 0 {
		t.Errorf("nothing says that memory was the cause: want EndDetail.MemoryKill or Incidents.MemoryKills; got %v, %+v", a.r, in)
	}
}

// wantStopped is for attacks that a full disk or an OOM kill may end.
func (a *attack) wantStopped(t *testing.T) {
	if strings.Contains(a.r.Stdout, "held") {
		t.Errorf("a program held much more than the memory limit: %v", a.r)
	}
	in := a.incidents(t)
	// With a low limit on file descriptors and small pipe buffers, all pipes
	// together stay below the memory limit.
	if strings.Contains(a.r.Stderr, "Too many open files") {
		return
	}
	if d := a.r.End.Detail; !d.MemoryKill && !d.DiskFull && in.MemoryKills == 0 {
		t.Errorf("nothing says what stopped it: want EndDetail.DiskFull or MemoryKill, or Incidents.MemoryKills; got %v, %+v", a.r, in)
	}
}

func (a *attack) wantProcesses(t *testing.T) {
	a.survived(t)
	if strings.Contains(a.r.Stdout, "made all") {
		t.Errorf("a program made twice the processes of the limit: %v", a.r)
	}
	if in := a.incidents(t); !a.r.End.Detail.ProcessLimit && in.ProcessRefusals == 0 {
		t.Errorf("nothing says that the process limit was the cause: want EndDetail.ProcessLimit or Incidents.ProcessRefusals; got %v, %+v", a.r, in)
	}
}

// wantProcessesOfAll checks that the limit applied to the sum over all users.
func (a *attack) wantProcessesOfAll(t *testing.T) {
	a.wantProcesses(t)
	var held int
	if _, err := fmt.Sscanf(a.r.Stdout, "held %d", &held); err != nil {
		t.Fatalf("the attack did not say how many processes it had: %v", a.r)
	}
	if most := a.b.Spec.Limits.Processes; held > most {
		t.Errorf("the programs of five users were %d at one time, with a limit of %d", held, most)
	}
}

func (a *attack) wantDisk(t *testing.T) {
	a.survived(t)
	if strings.Contains(a.r.Stdout, "wrote all") {
		t.Errorf("a program wrote twice the disk limit: %v", a.r)
	}
	if !a.r.End.Detail.DiskFull {
		t.Errorf("nothing says that the disk was full: want EndDetail.DiskFull; got %v", a.r)
	}
	if a.r.End.Detail.MemoryKill {
		t.Errorf("a full disk must not end for memory: %v", a.r)
	}
	// The guest can still remove files when the disk is full.
	if err := a.b.Client.Remove(step(t), a.b.Dir(t)+"/fill", asUser); err != nil {
		t.Errorf("Remove in a full box: %v", err)
	}
	a.b.MustSh(t, "echo room > again && rm again")
}

func (a *attack) wantTimeout(t *testing.T) {
	a.survived(t)
	if !a.r.End.Detail.TimedOut {
		t.Errorf("want EndDetail.TimedOut, got %v", a.r)
	}
}

// wantEnd is for attacks that may succeed within the box.
func (a *attack) wantEnd(t *testing.T) { a.survived(t) }

func memoryBomb(s *suite, spec *driver.Spec) Cmd {
	return Python(s.h.Python, hold, strconv.FormatInt(2*spec.Limits.MemoryBytes, 10))
}

// memoryBombShell doubles a string until it has at least twice the limit.
func memoryBombShell(_ *suite, spec *driver.Spec) Cmd {
	return Sh(fmt.Sprintf("x=0123456789abcdef; n=16; while [ $n -lt %d ]; do x=$x$x; n=$((n*2)); done; echo held $n", 2*spec.Limits.MemoryBytes))
}

func memoryBombInMany(s *suite, spec *driver.Spec) Cmd {
	each := spec.Limits.MemoryBytes / 4
	return Python(s.h.Python, `
import subprocess, sys, time
ps = [subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in range(8)]
ok = [p.stdout.readline() for p in ps]
time.sleep(0.5) # one that is killed for another's sake said that it holds, and holds nothing now
ok += [p.poll() is None for p in ps]
if all(ok): print("held by all")
for p in ps: p.kill()
sys.exit(0 if all(ok) else 1)
`, strconv.FormatInt(each, 10), hold+"sys.stdout.flush(); sys.stdin.read()")
}

func memoryFiles(_ *suite, spec *driver.Spec) Cmd {
	return Sh(fmt.Sprintf("head -c %d /dev/zero > /dev/shm/fill && echo held; r=$?; ls -l /dev/shm; exit $r", 2*spec.Limits.MemoryBytes))
}

// memoryPipes makes the kernel hold memory in full pipes, three times the limit.
// It then waits, so that the limit can end it.
func memoryPipes(s *suite, spec *driver.Spec) Cmd {
	return Python(s.h.Python, `
import fcntl, os, sys, time
want, held, ends = int(sys.argv[1]), 0, []
while held < want:
    r, w = os.pipe()
    ends += [r, w]
    try: fcntl.fcntl(w, 1031, 1 << 20)  # F_SETPIPE_SZ
    except OSError: pass
    os.set_blocking(w, False)
    try:
        while True: held += os.write(w, bytes(65536))
    except BlockingIOError: pass
time.sleep(3)
print("held", held)
`, strconv.FormatInt(3*spec.Limits.MemoryBytes, 10))
}

func forkBomb(_ *suite, spec *driver.Spec) Cmd { return Sh(forker(2 * spec.Limits.Processes)) }

// forkTree is the well-known fork bomb with a limited depth: at most two
// thousand processes.
func forkTree(*suite, *driver.Spec) Cmd {
	return Sh("b() { [ $1 -eq 0 ] && { sleep 3; return; }; b $(($1-1)) & p=$!; b $(($1-1)) & q=$!; wait $p && wait $q; }; b 10 && echo made all")
}

func threadBomb(s *suite, spec *driver.Spec) Cmd {
	return Python(s.h.Python, `
import sys, threading, os
stop = threading.Event()
n = 0
try:
    for _ in range(int(sys.argv[1])):
        threading.Thread(target=stop.wait, daemon=True).start(); n += 1
    print("made all")
except RuntimeError as e:
    print("stopped at", n); print(e, file=sys.stderr); sys.stdout.flush(); os._exit(1)
sys.stdout.flush(); os._exit(0)
`, strconv.Itoa(2*spec.Limits.Processes))
}

// ForkUsers is a program of sandbox-root. It makes four other users start as
// many processes each as one user may have. It prints the number of processes at
// one time, and keeps them for a while.
const ForkUsers = `
import os, signal, subprocess, sys, time
each, wait = sys.argv[1], float(sys.argv[2])
users = range(2001, 2005)
fork = "i=1; while [ $i -lt $1 ]; do sleep 600 > /dev/null & i=$((i+1)); done; echo; exec sleep 600"
try:
    for uid in users:
        p = subprocess.Popen(["/bin/sh", "-c", fork, "sh", each], user=uid, group=uid, extra_groups=[], stdout=subprocess.PIPE)
        p.stdout.readline() # it made them all, or was refused one
except OSError as e: print(e, file=sys.stderr)
held = 1
for pid in os.listdir("/proc"):
    try: held += pid.isdigit() and os.stat("/proc/" + pid).st_uid in users
    except FileNotFoundError: pass
print("held", held); sys.stdout.flush()
time.sleep(wait)
if held > 2 * int(each): print("made all")
sys.stdout.flush()
os.killpg(0, signal.SIGKILL)
`

func forkUsers(s *suite, spec *driver.Spec) Cmd {
	c := Python(s.h.Python, ForkUsers, strconv.Itoa(spec.Limits.Processes), "0.2")
	c.User = sandbox.Root
	return c
}

// orphans leaves 400 dead processes for the guest to reap.
func orphans(*suite, *driver.Spec) Cmd {
	return Sh("i=0; while [ $i -lt 400 ]; do (:&) ; i=$((i+1)); done; echo left")
}

func diskBigFile(_ *suite, spec *driver.Spec) Cmd {
	return Sh(fmt.Sprintf("head -c %d /dev/zero > fill && echo wrote all", 2*spec.Limits.DiskBytes))
}

func diskSmallFiles(_ *suite, spec *driver.Spec) Cmd {
	const size = 8192
	return Sh(fmt.Sprintf("mkdir fill; x=$(printf '%%%ds' x); i=0; while [ $i -lt %d ]; do printf %%s \"$x\" > fill/$i || exit 1; i=$((i+1)); done; echo wrote all",
		size, 2*spec.Limits.DiskBytes/size))
}

// diskEmptyFiles makes empty files, which use inodes but no blocks.
func diskEmptyFiles(*suite, *driver.Spec) Cmd {
	return Sh("mkdir fill; i=0; while [ $i -lt 20000 ]; do : > fill/$i || exit 1; i=$((i+1)); done; echo made all")
}

func deepDirectory(*suite, *driver.Spec) Cmd {
	return Sh("i=0; while [ $i -lt 300 ]; do mkdir d && cd ./d || exit 1; i=$((i+1)); done; echo down")
}

func outputFlood(*suite, *driver.Spec) Cmd {
	return Sh("trap '' TERM; yes flood & yes flood >&2 & yes & wait")
}

func descriptors(s *suite, _ *driver.Spec) Cmd {
	return Python(s.h.Python, `
import os, sys
held = []
try:
    while len(held) < 100000: held.append(os.open("/dev/null", os.O_RDONLY))
    print("opened", len(held))
except OSError as e:
    print("stopped at", len(held), e)
pids = []
for _ in range(8):
    try: pid = os.fork()
    except OSError: break
    if pid == 0:
        n = 0
        try:
            while n < 100000: os.pipe(); n += 2
        except OSError: pass
        os._exit(0)
    pids.append(pid)
for p in pids: os.waitpid(p, 0)
`)
}

func inotify(s *suite, _ *driver.Spec) Cmd {
	return Python(s.h.Python, `
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
made = watches = 0
while made < 5000 and libc.inotify_init1(0) >= 0: made += 1
print("instances", made, os.strerror(ctypes.get_errno()))
for fd in list(range(3, 3 + made))[:1]:
    for i in range(20000):
        d = "w%d" % i
        try: os.mkdir(d)
        except OSError: break
        if libc.inotify_add_watch(fd, d.encode(), 0xfff) < 0: break
        watches += 1
print("watches", watches)
`)
}

// hostileWatchers opens many watches by the guest's API.
func hostileWatchers(t *testing.T, s *suite) {
	st := s.open(t)
	b := st.box(t)
	dir := b.Dir(t)
	b.MustSh(t, "mkdir watched")
	var open []*guestapi.Watcher
	for i := range 300 {
		w, err := b.Client.Watch(t.Context(), dir+"/watched", true, asUser)
		if err != nil {
			if !errors.Is(err, sandbox.Exhausted) {
				t.Errorf("watch number %d: got %v (kind %s), want it to work or to be refused with %s", i+1, err, sandbox.KindOf(err), sandbox.Exhausted)
			}
			break
		}
		open = append(open, w)
	}
	t.Logf("%d watches at once", len(open))
	if len(open) < 10 {
		t.Errorf("only %d watches at once", len(open))
	}
	b.Answers(t, "with many watches")
	if st.Info().Isolates { // else its watches use the host's inotify limits
		hostUnharmed(t, "with many watches")
	}
	for _, w := range open {
		w.Close()
	}
	eventually(t, "no watch can be opened after all others were closed", func() bool {
		w, err := b.Client.Watch(t.Context(), dir+"/watched", true, asUser)
		if err == nil {
			w.Close()
		}
		return err == nil
	})
}

// hostileConnections opens connections to the guest that send nothing or invalid
// data.
func hostileConnections(t *testing.T, s *suite) {
	b := s.newBox(t)
	for i := range 60 {
		conn, err := b.Dial(step(t))
		if err != nil {
			t.Fatalf("Dial number %d: %v", i+1, err)
		}
		defer conn.Close()
		switch i % 3 {
		case 1:
			fmt.Fprint(conn, "GET /health HTTP/1.1\r\nHost: gu")
		case 2:
			conn.Write([]byte("\x16\x03\x01\x00\x00nonsense\r\n\r\n"))
		}
	}
	b.Answers(t, "with 60 streams that say nothing or nonsense")
}
