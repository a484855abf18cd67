package guest

import (
	"fmt"
	"io"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// BenchmarkOutput is how fast a process's output reaches the host.
func BenchmarkOutput(b *testing.B) {
	h := newHost(b)
	const size = 256 << 20
	b.SetBytes(size)
	for b.Loop() {
		p := h.start(sh(fmt.Sprintf("head -c %d /dev/zero", size)), guestapi.StartOptions{})
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
	h := newHost(b)
	no := false
	req := &guestapi.StartRequest{Process: guestapi.ProcessConfig{Cmd: "/bin/true", Cwd: "/"}, Stdin: &no}
	for b.Loop() {
		collect(b, h.start(req, guestapi.StartOptions{}))
	}
}

// BenchmarkHealth is the least call.
func BenchmarkHealth(b *testing.B) {
	h := newHost(b)
	for b.Loop() {
		if err := h.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkKill is the end of a small tree.
func BenchmarkKill(b *testing.B) {
	h := newHost(b)
	for b.Loop() {
		p := h.start(sh("sleep 1000 & sleep 1001"), guestapi.StartOptions{})
		if err := h.Signal(b.Context(), pidOf(p), guestapi.SIGKILL); err != nil {
			b.Fatal(err)
		}
		collect(b, p)
	}
}

// BenchmarkReadFile is how fast a file's contents reach the host.
func BenchmarkReadFile(b *testing.B) {
	h := newHost(b)
	dir := userDir(b, "")
	const size = 64 << 20
	if _, err := h.Write(b.Context(), dir+"/f", io.LimitReader(pattern{}, size), guestapi.WriteOptions{}); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(size)
	for b.Loop() {
		r, _, err := h.Read(b.Context(), dir+"/f", 0, -1, noOpts)
		if err != nil {
			b.Fatal(err)
		}
		if n, err := io.Copy(io.Discard, r); err != nil || n != size {
			b.Fatal(n, err)
		}
		r.Close()
	}
}

// BenchmarkLines is a program that writes each short line by itself.
func BenchmarkLines(b *testing.B) {
	h := newHost(b)
	for b.Loop() {
		r := collect(b, h.start(sh("i=0; while [ $i -lt 50000 ]; do echo $i; i=$((i+1)); done"), guestapi.StartOptions{}))
		if len(r.stdout) != 288890 {
			b.Fatal(len(r.stdout))
		}
	}
}
