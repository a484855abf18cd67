package process_test

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Much output arrives complete, and each stream in order, and slowly taken
// output does not pile up in the guest.
func TestMuchOutput(t *testing.T) {
	h := guesttest.New(t)
	const size = 100 << 20
	script := fmt.Sprintf("head -c %d /dev/zero | tr '\\0' a & head -c %d /dev/zero | tr '\\0' b >&2 & wait", size, size/4)
	p := h.Begin(guesttest.Sh(script), guestapi.StartOptions{})
	// Warm: the pools have what they will have.
	before := h.Memory()
	time.Sleep(300 * time.Millisecond) // while nobody reads
	a, b, most := 0, 0, 0
	for i := 0; ; i++ {
		ev, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		if ev.End != nil {
			break
		}
		a += bytes.Count(ev.Data.Stdout, []byte("a"))
		b += bytes.Count(ev.Data.Stderr, []byte("b"))
		if i%64 == 0 {
			most = max(most, h.Memory())
		}
	}
	if a != size || b != size/4 {
		t.Errorf("%d and %d bytes, want %d and %d", a, b, size, size/4)
	}
	if grown := most - before; grown > 40<<20 {
		t.Errorf("the guest grew by %d MiB", grown>>20)
	}
}

func TestOrderOfOutput(t *testing.T) {
	h := guesttest.New(t)
	r := h.Run("i=0; while [ $i -lt 3000 ]; do echo $i; echo $i >&2; i=$((i+1)); done")
	var want strings.Builder
	for i := range 3000 {
		want.WriteString(strconv.Itoa(i) + "\n")
	}
	if r.Stdout != want.String() || r.Stderr != want.String() {
		t.Error("output is not what was written")
	}
}

func TestBackPressure(t *testing.T) {
	h := guesttest.New(t)
	// Nobody reads: the process stops writing, and goes on when read.
	p := h.Begin(guesttest.Sh("yes & wait"), guestapi.StartOptions{})
	cpu := func() (ticks uint64) {
		for _, d := range h.Descendants() {
			var buf [1024]byte
			n := procfs.ReadSmall("/proc/"+strconv.Itoa(d.PID)+"/stat", buf[:])
			f := strings.Fields(string(buf[bytes.LastIndexByte(buf[:n], ')')+1 : n]))
			u, _ := strconv.ParseUint(f[11], 10, 64)
			s, _ := strconv.ParseUint(f[12], 10, 64)
			ticks += u + s
		}
		return ticks
	}
	time.Sleep(500 * time.Millisecond)
	first := cpu()
	time.Sleep(500 * time.Millisecond)
	if more := cpu() - first; more > 2 {
		t.Errorf("the process ran for %d ticks while nobody read", more)
	}
	for read := 0; read < 20<<20; {
		ev, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		read += len(ev.Data.Stdout)
	}
	if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

func TestKeep(t *testing.T) {
	h := guesttest.New(t)
	ctx := t.Context()
	const size = 8 << 20
	req := guesttest.Sh(fmt.Sprintf("echo begin; head -c %d /dev/zero | tr '\\0' x; echo end", size))
	req.Keep, req.Tag = true, "kept"
	p := h.Begin(req, guestapi.StartOptions{})
	sel := guesttest.PIDOf(p)
	p.Close() // before anything was read
	time.Sleep(200 * time.Millisecond)
	before := h.Memory()
	if before > 100<<20 {
		t.Errorf("the guest holds %d MiB", before>>20)
	}

	// Taken in parts, by one stream after another. What a stream took is what
	// the guest could send to it; so each reads all that is under way.
	var got int
	for range 3 {
		q, err := h.Connect(ctx, sel)
		if err != nil {
			t.Fatal(err)
		}
		if q.PID() != sel.PID {
			t.Errorf("pid %d, want %d", q.PID(), sel.PID)
		}
		ev, err := q.Next()
		if err != nil {
			t.Fatal(err)
		}
		got += len(ev.Data.Stdout)
		q.Close()
	}
	q, err := h.Connect(ctx, guestapi.ProcessSelector{Tag: "kept"})
	if err != nil {
		t.Fatal(err)
	}
	r := guesttest.Collect(t, q)
	if !strings.HasSuffix(r.Stdout, "x\nend\n") && !strings.HasSuffix(r.Stdout, "xend\n") {
		t.Errorf("the last of the output is %q", r.Stdout[max(0, len(r.Stdout)-20):])
	}
	_, err = h.Connect(ctx, sel)
	guesttest.WantKind(t, err, sandbox.NotFound, "no process")
}

// An end that nobody took waits, with all output.
func TestKeepsTheEnd(t *testing.T) {
	h := guesttest.New(t)
	req := guesttest.Sh("echo early; sleep 0.2; echo late; exit 5")
	req.Keep = true
	p := h.Begin(req, guestapi.StartOptions{})
	sel := guesttest.PIDOf(p)
	p.Close()
	guesttest.Eventually(t, "it ended", func() bool { return len(h.Descendants()) == 0 })
	list, err := h.Processes(t.Context())
	if err != nil || len(list) != 1 {
		t.Fatalf("list is %v, %v", list, err)
	}
	q, err := h.Connect(t.Context(), sel)
	if err != nil {
		t.Fatal(err)
	}
	// The first stream may have taken "early" before it was closed.
	if r := guesttest.Collect(t, q); strings.TrimPrefix(r.Stdout, "early\n") != "late\n" || r.End.Code() != 5 {
		t.Errorf("%q, %+v", r.Stdout, r.End)
	}
	list, err = h.Processes(t.Context())
	if err != nil || len(list) != 0 {
		t.Fatalf("list is %v, %v", list, err)
	}
}

func TestWithoutKeepOutputIsDropped(t *testing.T) {
	h := guesttest.New(t)
	p := h.Begin(guesttest.Sh("head -c 20000000 /dev/zero; touch /dev/null; sleep 1000"), guestapi.StartOptions{})
	p.Close()
	guesttest.Eventually(t, "it runs on", func() bool { // head is done, sleep runs
		list := h.Descendants()
		return len(list) == 2 || len(list) == 1 && list[0].State == 'S'
	})
	q, err := h.Connect(t.Context(), guesttest.PIDOf(p))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Signal(t.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	guesttest.Collect(t, q)
}

// Every attached stream gets all that comes while it is attached.
func TestSeveralStreams(t *testing.T) {
	h := guesttest.New(t)
	req := guesttest.Sh("read x; seq 1 200000")
	req.Stdin = nil
	p := h.Begin(req, guestapi.StartOptions{})
	streams := []*guestapi.Events{p}
	for range 4 {
		q, err := h.Connect(t.Context(), guesttest.PIDOf(p))
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, q)
	}
	if err := h.SendInput(t.Context(), guesttest.PIDOf(p), []byte("\n"), false); err != nil {
		t.Fatal(err)
	}
	results := make([]guesttest.Result, len(streams))
	var wg sync.WaitGroup
	for i, q := range streams {
		wg.Go(func() { results[i] = guesttest.Collect(t, q) })
	}
	wg.Wait()
	for i, r := range results {
		if !strings.HasPrefix(r.Stdout, "1\n2\n") || !strings.HasSuffix(r.Stdout, "\n200000\n") || r.Stdout != results[0].Stdout {
			t.Errorf("stream %d has %d bytes", i, len(r.Stdout))
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	h := guesttest.New(t)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			p, err := h.Start(t.Context(), guesttest.Sh(fmt.Sprintf("sleep 0.1; echo %d", i)), guestapi.StartOptions{})
			if err != nil {
				t.Error(err)
				return
			}
			if r := guesttest.Collect(t, p); r.Stdout != fmt.Sprintf("%d\n", i) {
				t.Errorf("%d: %q", i, r.Stdout)
			}
		})
	}
	wg.Wait()
}
