package drivertest

import (
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

var writeOptions = guestapi.WriteOptions{}

func discard(*guestapi.DataEvent) {}

// newEndless returns a reader of endless data. end closes it.
func newEndless() (r io.Reader, end func()) {
	pr, pw := io.Pipe()
	go func() {
		buf := make([]byte, 1024)
		for {
			if _, err := pw.Write(buf); err != nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return pr, func() { pr.CloseWithError(io.ErrClosedPipe) }
}

// manyRuns keeps 100 runs alive in one box at the same time. Each run waits for
// input, and the test sends the input only when all have printed a line.
func manyRuns(t *testing.T, s *suite) {
	b := s.newBox(t)
	const n = 100
	var ready, done sync.WaitGroup
	ready.Add(n)
	release := make(chan struct{})
	for i := range n {
		done.Go(func() {
			once := sync.OnceFunc(ready.Done)
			defer once()
			ctx := step(t)
			p, err := b.Start(ctx, Cmd{Shell: fmt.Sprintf("echo r%d; read -r x; echo $x; echo e%d >&2; exit %d", i, i, i), Open: true})
			if err != nil {
				t.Errorf("run %d of %d at once: %v", i, n, err)
				return
			}
			defer p.Close()
			ev, err := p.Next()
			if err != nil || ev.Data == nil || string(ev.Data.Stdout) != fmt.Sprintf("r%d\n", i) {
				t.Errorf("run %d of %d at once: first event %+v, %v", i, n, ev, err)
				return
			}
			once()
			<-release
			if err := b.Client.SendInput(ctx, guestapi.ProcessSelector{PID: p.PID()}, fmt.Appendf(nil, "x%d\n", i), false); err != nil {
				t.Errorf("run %d of %d at once: input: %v", i, n, err)
				return
			}
			r, err := Collect(p, nil)
			if err != nil || r.Stdout != fmt.Sprintf("x%d\n", i) || r.Stderr != fmt.Sprintf("e%d\n", i) || r.End.Code() != i {
				t.Errorf("run %d of %d at once: %v, %v", i, n, err, r)
			}
		})
	}
	ready.Wait()
	ps, err := b.Client.Processes(step(t))
	if err != nil || len(ps) != n {
		t.Errorf("Processes lists %d of %d runs that are alive: %v", len(ps), n, err)
	}
	close(release)
	done.Wait()
	b.Answers(t, "after 100 runs at once")
}

// manyBoxes creates, uses and destroys 20 boxes at the same time.
func manyBoxes(t *testing.T, s *suite) {
	st := s.open(t)
	const n = 20
	boxes := make([]*Box, n)
	began := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			spec := s.h.Spec()
			spec.Limits.MemoryBytes = min(spec.Limits.MemoryBytes, 256<<20)
			b, err := st.Create(step(t), spec)
			if err != nil {
				t.Errorf("Create, %d at once: %v", n, err)
				return
			}
			boxes[i] = &Box{Box: b, Client: guestapi.NewClient(b.Dial), Spec: spec}
		})
	}
	wg.Wait()
	t.Logf("%d boxes at once took %v", n, time.Since(began).Round(time.Millisecond))
	refs, err := st.List(step(t))
	if err != nil || (len(refs) != n && !t.Failed()) {
		t.Errorf("List: %d boxes, want %d; %v", len(refs), n, err)
	}
	for i, b := range boxes {
		if b == nil {
			continue
		}
		wg.Go(func() {
			defer b.Client.Close()
			r, err := b.Run(step(t), Cmd{Shell: "echo $0 > id; sleep 0.2; cat id; ls", Env: map[string]string{"I": fmt.Sprint(i)}})
			if err != nil || r.Stdout != "/bin/sh\nid\n" {
				t.Errorf("box %d of %d: %v, %v", i, n, err, r)
			}
		})
	}
	wg.Wait()
	began = time.Now()
	for _, b := range boxes {
		if b == nil {
			continue
		}
		wg.Go(func() {
			if err := b.Destroy(step(t)); err != nil {
				t.Errorf("Destroy, %d at once: %v", n, err)
			}
		})
	}
	wg.Wait()
	t.Logf("destroying %d boxes at once took %v", n, time.Since(began).Round(time.Millisecond))
	st.nothingLeft(t, "after 20 boxes at once")
}
