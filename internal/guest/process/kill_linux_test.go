package process_test

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
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

func ready(t *testing.T, p *guestapi.Events) {
	t.Helper()
	if end := readyOrEnd(t, p); end != nil {
		t.Fatalf("before it was ready: %+v", end)
	}
}

// readyOrEnd returns the end of a process that ended before it was ready.
func readyOrEnd(t *testing.T, p *guestapi.Events) *guestapi.End {
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
	h := guesttest.New(t)
	// A neighbour that must not be touched.
	neighbour := h.Begin(guesttest.Sh("setsid sleep 5000 & (env -i sleep 5001 &); echo ready; sleep 5002"), guestapi.StartOptions{})
	ready(t, neighbour)
	alone := func() bool { return len(h.Descendants()) == 4 }
	guesttest.Eventually(t, "the neighbour is there", alone)
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			p := h.Begin(guesttest.Sh(script), guestapi.StartOptions{})
			ready(t, p)
			time.Sleep(20 * time.Millisecond) // let it fork a little
			if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
				t.Fatal(err)
			}
			if list := h.Descendants(); len(list) != 4 {
				t.Errorf("left after the reply: %+v", list)
			}
			if end := guesttest.Collect(t, p).End; end.ExitCode != nil || end.Detail.Signal != 9 || end.Detail.Left != 0 || end.Detail.TimedOut {
				t.Errorf("end is %+v, %+v", end, end.Detail)
			}
		})
	}
	if !alone() {
		t.Error("the neighbour was hit")
	}
}

func TestTimeoutEndsTheTree(t *testing.T) {
	h := guesttest.New(t)
	for name, script := range hostile {
		t.Run(name, func(t *testing.T) {
			limit := 200 * time.Millisecond
			began := time.Now()
			p := h.Begin(guesttest.Sh(script), guestapi.StartOptions{Timeout: limit})
			// Where the machine is too busy for the tree to be there by then, it gets
			// more time.
			for end := readyOrEnd(t, p); end != nil; end = readyOrEnd(t, p) {
				if p.Close(); !end.Detail.TimedOut || limit > 10*time.Second {
					t.Fatalf("with %v it was not ready: %+v, %+v", limit, end, end.Detail)
				}
				limit *= 2
				began = time.Now()
				p = h.Begin(guesttest.Sh(script), guestapi.StartOptions{Timeout: limit})
			}
			end := guesttest.Collect(t, p).End
			if took := time.Since(began); took < limit || took > limit+5*time.Second {
				t.Errorf("it took %v with a limit of %v", took, limit)
			}
			if !end.Detail.TimedOut || end.Detail.Left != 0 {
				t.Errorf("end is %+v, %+v", end, end.Detail)
			}
			if list := h.Descendants(); len(list) != 0 {
				t.Errorf("left: %+v", list)
			}
		})
	}
	r := guesttest.Collect(t, h.Begin(guesttest.Sh("echo quick"), guestapi.StartOptions{Timeout: time.Minute}))
	if r.Stdout != "quick\n" || r.End.Detail.TimedOut {
		t.Errorf("%q, %+v", r.Stdout, r.End.Detail)
	}
}

// A fork bomb at the limit is ended, with the guest unharmed.
func TestForkBomb(t *testing.T) {
	guesttest.NeedRoot(t) // the limit is per user, and must not be the tester's own
	h := guesttest.New(t, "--nproc", "100")
	bomb := `bomb() { bomb | bomb & }; echo ready; bomb; sleep 1000`
	p := h.Begin(guesttest.Sh(bomb), guestapi.StartOptions{Timeout: 500 * time.Millisecond})
	end := guesttest.Collect(t, p).End
	if !end.Detail.TimedOut || !end.Detail.ProcessLimit || end.Detail.Left != 0 {
		t.Errorf("end is %+v", end.Detail)
	}
	if list := h.Descendants(); len(list) != 0 {
		t.Errorf("%d are left", len(list))
	}
	if r := h.Run("echo fine"); r.Stdout != "fine\n" || r.End.Detail.ProcessLimit {
		t.Errorf("%q, %+v", r.Stdout, r.End.Detail)
	}
	// One that hits the limit and says so.
	r := h.Run(`for i in $(seq 200); do sleep 5 & done; echo no; exit 1`)
	if !r.End.Detail.ProcessLimit || r.End.Code() == 0 {
		t.Errorf("%q, %+v, %+v", r.Stderr, r.End, r.End.Detail)
	}
}

// What a finished run left in the background lives on, holds no stream open,
// and can go on writing; and a kill of another run does not touch it.
func TestBackgroundLivesOn(t *testing.T) {
	h := guesttest.New(t)
	dir := t.TempDir()
	pulse := filepath.Join(dir, "pulse")
	began := time.Now()
	r := guesttest.Collect(t, h.Begin(guesttest.Sh("(while :; do echo x; echo x >> "+pulse+"; sleep 0.02; done) & echo main"),
		guestapi.StartOptions{User: sandbox.Root}))
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("the end took %v", took)
	}
	if !strings.Contains(r.Stdout, "main\n") || r.End.Detail.Left == 0 {
		t.Errorf("%q, %+v", r.Stdout, r.End.Detail)
	}
	p := h.Begin(guesttest.Sh("sleep 1000"), guestapi.StartOptions{})
	if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
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
	guesttest.Eventually(t, "the background process writes on", func() bool { return size() > before+10 })
}

// A quiet descendant that holds the output open delays the end a little only.
func TestHeldOutput(t *testing.T) {
	h := guesttest.New(t)
	began := time.Now()
	r := h.Run("sleep 1000 & seq 1 100000")
	took := time.Since(began)
	if !strings.HasSuffix(r.Stdout, "\n100000\n") || r.End.Detail.Left != 1 {
		t.Errorf("%d bytes, %+v", len(r.Stdout), r.End.Detail)
	}
	if took > 2*time.Second {
		t.Errorf("the end took %v", took)
	}
}

// The guest is not the host's reaper: what is not its descendant is safe, even
// if it bears a marker.
func TestStrangersAreSafe(t *testing.T) {
	h := guesttest.New(t)
	r := h.Run("echo $GLOVEBOX_PROCESS")
	p := h.Begin(guesttest.Sh("echo $GLOVEBOX_PROCESS; sleep 1000"), guestapi.StartOptions{})
	ev, err := p.Next()
	if err != nil {
		t.Fatal(err)
	}
	marker := strings.TrimSpace(string(ev.Data.Stdout))
	if marker == strings.TrimSpace(r.Stdout) || !strings.Contains(marker, ".") {
		t.Errorf("markers are %q and %q", marker, r.Stdout)
	}
	stranger := exec.Command("sleep", "1000")
	stranger.Env = []string{"GLOVEBOX_PROCESS=" + marker}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { stranger.Process.Kill(); stranger.Wait() }()
	if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if info, ok := procfs.Read(stranger.Process.Pid); !ok || info.Dead() || info.State == 'T' {
		t.Errorf("the stranger was hit: %+v", info)
	}
}

// TestDeadlineOfAStream: a stream of E2B's protocol ends at its request's timeout
// with the code of a passed deadline. The program of a start ends, too; one that a
// caller is only connected to goes on.
func TestDeadlineOfAStream(t *testing.T) {
	h := guesttest.New(t)
	c := guesttest.NewRawClient(t, h)
	ask := func(path, timeout, body string) string {
		t.Helper()
		envelope := string(guestapi.AppendEnvelope(nil, 0, []byte(body)))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://guest"+path, strings.NewReader(envelope))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", guestapi.ContentTypeStream)
		req.Header.Set(guestapi.HeaderTimeout, timeout)
		resp, err := c.HTTP.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	start := func(script string) string {
		return fmt.Sprintf(`{"process":{"cmd":"/bin/sh","args":["-c",%q]},"stdin":false}`, script)
	}
	for name, script := range map[string]string{"silent": "sleep 1000", "busy": "while :; do echo x; done", "deaf": "trap '' TERM; sleep 1000"} {
		got := ask(guestapi.ProcStart, "300", start(script))
		if !strings.Contains(got, `"code":"deadline_exceeded"`) || strings.Contains(got, `"end":`) {
			t.Errorf("%s: the stream ends with %q", name, got[max(0, len(got)-200):])
		}
		guesttest.Eventually(t, "its processes end", func() bool { return len(h.Descendants()) == 0 })
	}
	if got := ask(guestapi.ProcStart, "60000", start("echo quick")); !strings.Contains(got, `"end":{"exitCode":0`) {
		t.Errorf("a program that ends in time: %q", got)
	}
	if got := ask(guestapi.ProcStart, "soon", start("true")); !strings.Contains(got, "invalid_argument") {
		t.Errorf("a timeout that is no number: %q", got)
	}

	p := h.Begin(guesttest.Sh("exec sleep 1000"), guestapi.StartOptions{})
	pid := guesttest.PIDOf(p)
	if got := ask(guestapi.ProcConnect, "200", fmt.Sprintf(`{"process":{"pid":%d}}`, pid.PID)); !strings.Contains(got, "deadline_exceeded") {
		t.Errorf("a connection to a program ends with %q", got)
	}
	if list := h.Descendants(); len(list) != 1 {
		t.Errorf("after the connection ended, there are the processes %+v", list)
	}
	if err := h.Signal(t.Context(), pid, guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	guesttest.Collect(t, p)
	dir := guesttest.UserDir(t, "")
	if got := ask(guestapi.FSWatchDir, "200", fmt.Sprintf(`{"path":%q}`, dir)); !strings.Contains(got, "deadline_exceeded") {
		t.Errorf("a watch ends with %q", got)
	}
}
