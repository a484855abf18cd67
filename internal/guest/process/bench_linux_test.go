package process_test

import (
	"fmt"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// BenchmarkOutput is how fast a process's output reaches the host.
func BenchmarkOutput(b *testing.B) {
	h := guesttest.New(b)
	const size = 256 << 20
	b.SetBytes(size)
	for b.Loop() {
		p := h.Begin(guesttest.Sh(fmt.Sprintf("head -c %d /dev/zero", size)), guestapi.StartOptions{})
		n := 0
		for {
			ev, err := p.Next()
			if err != nil {
				b.Fatal(err)
			}
			if ev.End != nil {
				break
			}
			n += len(ev.Data.Stdout)
		}
		if n != size {
			b.Fatalf("%d bytes", n)
		}
	}
}

// BenchmarkTrue is a whole run of the least program.
func BenchmarkTrue(b *testing.B) {
	h := guesttest.New(b)
	no := false
	req := &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "/bin/true", Cwd: "/"}, Stdin: &no}
	for b.Loop() {
		guesttest.Collect(b, h.Begin(req, guestapi.StartOptions{}))
	}
}

// BenchmarkKill is the end of a small tree.
func BenchmarkKill(b *testing.B) {
	h := guesttest.New(b)
	for b.Loop() {
		p := h.Begin(guesttest.Sh("sleep 1000 & sleep 1001"), guestapi.StartOptions{})
		if err := h.Signal(b.Context(), guesttest.PIDOf(p), guestapi.SIGKILL); err != nil {
			b.Fatal(err)
		}
		guesttest.Collect(b, p)
	}
}

// BenchmarkLines is a program that writes each short line by itself.
func BenchmarkLines(b *testing.B) {
	h := guesttest.New(b)
	for b.Loop() {
		r := guesttest.Collect(b, h.Begin(guesttest.Sh("i=0; while [ $i -lt 50000 ]; do echo $i; i=$((i+1)); done"), guestapi.StartOptions{}))
		if len(r.Stdout) != 288890 {
			b.Fatal(len(r.Stdout))
		}
	}
}
