package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hostile are scripts whose processes try to get away. Each says "ready" when
// it did what it could.
var hostile = map[string]string{
	"plain":           "echo ready; sleep 1000",
	"ignores TERM":    "trap '' TERM HUP INT; echo ready; while :; do sleep 1; done",
	"background":      "sleep 1000 & sleep 1001 & echo ready; wait",
	"double fork":     "(sleep 1000 &) ; echo ready; sleep 1001",
	"setsid":          "setsid sleep 1000 & echo ready; sleep 1001",
	"daemon":          "(setsid sh -c 'sleep 1000; true' >/dev/null 2>&1 </dev/null &) ; echo ready; sleep 1001",
	"env cleared":     "(setsid env -i sleep 1000 >/dev/null 2>&1 &) ; echo ready; sleep 1001",
	"stopped":         "sleep 1000 & kill -STOP $!; echo ready; sleep 1001",
	"holds stdout":    "(setsid sh -c 'trap \"\" HUP TERM; sleep 1000; true' &) ; echo ready; sleep 1001",
	"respawns":        "sh -c 'while :; do setsid sleep 0.05 & wait; done' & echo ready; wait",
	"chain of shells": "sh -c 'sh -c \"sh -c \\\"sleep 1000; true\\\"; true\"; true' & echo ready; wait",
}

func ready(t *testing.T, p *guestapi.Process) {
	t.Helper()
	if end := readyOrEnd(t, p); end != nil {
		t.Fatalf("before it was ready: %+v", end)
	}
}

// readyOrEnd returns the end of a process that ended before it was ready.
func readyOrEnd(t *testing.T, p *guestapi.Process) *guestapi.EndEvent {
	t.Helper()
	for {
		ev, err := p.Next()
		if err != nil {
			t.Fatalf("before it was ready: %v", err)
		}
		if ev.End != nil {
			return ev.End
		}
		if strings.Contains(string(ev.Data.Stdout), "ready\n") {
			return nil
		}
	}
}

func TestKillEndsTheTree(t *testing.T) {
	h := newHost(t)
	// A neighbour that must not be touched.
	neighbour := h.start(sh("setsid sleep 5000 & (env -i sleep 5001 &); echo ready; sleep 5002"), guestapi.StartOptions{})
	ready(t, neighbour)
	alone := func() bool { return len(h.descendants()) == 4 }
	eventually(t, "the neighbour is there", alone)
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			p := h.start(sh(script), guestapi.StartOptions{})
			ready(t, p)
			time.Sleep(20 * time.Millisecond) // let it fork a little
			if err := h.Signal(t.Context(), pidOf(p), guestapi.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if list := h.descendants(); len(list) != 4 {
				t.Errorf("left after the reply: %+v", list)
			}
			if end := collect(t, p).end; end.Exited || end.Detail.Signal != 9 || end.Detail.Left != 0 || end.Detail.TimedOut {
				t.Errorf("end is %+v, %+v", end, end.Detail)
			}
		})
	}
	if !alone() {
		t.Error("the neighbour was hit")
	}
}

func TestTimeoutEndsTheTree(t *testing.T) {
	h := newHost(t)
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			limit := 200 * time.Millisecond
			began := time.Now()
			p := h.start(sh(script), guestapi.StartOptions{Timeout: limit})
			// Where the machine is too busy for the tree to be there by then, it gets
			// more time.
			for end := readyOrEnd(t, p); end != nil; end = readyOrEnd(t, p) {
				if p.Close(); !end.Detail.TimedOut || limit > 10*time.Second {
					t.Fatalf("with %v it was not ready: %+v, %+v", limit, end, end.Detail)
				}
				limit *= 2
				began = time.Now()
				p = h.start(sh(script), guestapi.StartOptions{Timeout: limit})
			}
			end := collect(t, p).end
			if took := time.Since(began); took < limit || took > limit+5*time.Second {
				t.Errorf("it took %v with a limit of %v", took, limit)
			}
			if !end.Detail.TimedOut || end.Detail.Left != 0 {
				t.Errorf("end is %+v, %+v", end, end.Detail)
			}
			if list := h.descendants(); len(list) != 0 {
				t.Errorf("left: %+v", list)
			}
		})
	}
	r := collect(t, h.start(sh("echo quick"), guestapi.StartOptions{Timeout: time.Minute}))
	if r.stdout != "quick\n" || r.end.Detail.TimedOut {
		t.Errorf("%q, %+v", r.stdout, r.end.Detail)
	}
}

// A fork bomb at the limit is ended, with the guest unharmed.
func TestForkBomb(t *testing.T) {
	needRoot(t) // the limit is per user, and must not be the tester's own
	h := newHost(t, "--nproc", "100")
	bomb := `bomb() { bomb | bomb & }; echo ready; bomb; sleep 1000`
	p := h.start(sh(bomb), guestapi.StartOptions{Timeout: 500 * time.Millisecond})
	end := collect(t, p).end
	if !end.Detail.TimedOut || !end.Detail.ProcessLimit || end.Detail.Left != 0 {
		t.Errorf("end is %+v", end.Detail)
	}
	if list := h.descendants(); len(list) != 0 {
		t.Errorf("%d are left", len(list))
	}
	if r := h.run("echo fine"); r.stdout != "fine\n" || r.end.Detail.ProcessLimit {
		t.Errorf("%q, %+v", r.stdout, r.end.Detail)
	}
	// One that hits the limit and says so.
	r := h.run(`for i in $(seq 200); do sleep 5 & done; echo no; exit 1`)
	if !r.end.Detail.ProcessLimit || r.end.ExitCode == 0 {
		t.Errorf("%q, %+v, %+v", r.stderr, r.end, r.end.Detail)
	}
}

// What a finished run left in the background lives on, holds no stream open,
// and can go on writing; and a kill of another run does not touch it.
func TestBackgroundLivesOn(t *testing.T) {
	h := newHost(t)
	dir := t.TempDir()
	pulse := filepath.Join(dir, "pulse")
	began := time.Now()
	r := collect(t, h.start(sh("(while :; do echo x; echo x >> "+pulse+"; sleep 0.02; done) & echo main"),
		guestapi.StartOptions{User: sandbox.Root}))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
	if !strings.Contains(r.stdout, "main\n") || r.end.Detail.Left == 0 {
		t.Errorf("%q, %+v", r.stdout, r.end.Detail)
	}
	p := h.start(sh("sleep 1000"), guestapi.StartOptions{})
	if err := h.Signal(t.Context(), pidOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		info, err := os.Stat(pulse)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	before := size()
	eventually(t, "the background process writes on", func() bool { return size() > before+10 })
}

// A quiet descendant that holds the output open delays the end a little only.
func TestHeldOutput(t *testing.T) {
	h := newHost(t)
	began := time.Now()
	r := h.run("sleep 1000 & seq 1 100000")
	took := time.Since(began)
	if !strings.HasSuffix(r.stdout, "\n100000\n") || r.end.Detail.Left != 1 {
		t.Errorf("%d bytes, %+v", len(r.stdout), r.end.Detail)
	}
	if took > 2*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// The guest is not the host's reaper: what is not its descendant is safe, even
// if it bears a marker.
func TestStrangersAreSafe(t *testing.T) {
	h := newHost(t)
	r := h.run("echo $GLOVEBOX_PROCESS")
	p := h.start(sh("echo $GLOVEBOX_PROCESS; sleep 1000"), guestapi.StartOptions{})
	ev, err := p.Next()
	if err != nil {
		t.Fatal(err)
	}
	marker := strings.TrimSpace(string(ev.Data.Stdout))
	if marker == strings.TrimSpace(r.stdout) || !strings.Contains(marker, ".") {
		t.Errorf("markers are %q and %q", marker, r.stdout)
	}
	stranger := exec.Command("sleep", "1000")
	stranger.Env = []string{"GLOVEBOX_PROCESS=" + marker}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stranger.Process.Kill(); stranger.Wait() }()
	if err := h.Signal(t.Context(), pidOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if info, ok := procfs.Read(stranger.Process.Pid); !ok || info.Dead() || info.State == 'T' {
		t.Errorf("the stranger was hit: %+v", info)
	}
}
