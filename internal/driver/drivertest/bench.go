package drivertest

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// Benchmark measures a driver. Each figure comes as p50 and p99, in
// milliseconds.
func Benchmark(b *testing.B, h Harness) {
	s := &suite{h: h}
	b.Run("CreateToFirstOutput", func(b *testing.B) { benchCreate(b, s) })
	b.Run("Exec", func(b *testing.B) {
		box := s.newBox(b)
		measure(b, func() error {
			return second(box.Run(b.Context(), Cmd{Argv: []string{"/bin/true"}}))
		})
	})
	b.Run("Health", func(b *testing.B) {
		box := s.newBox(b)
		measure(b, func() error { return box.Client.Health(b.Context()) })
	})
	b.Run("Dial", func(b *testing.B) {
		box := s.newBox(b)
		measure(b, func() error {
			c := guestapi.NewClient(box.Box.Dial)
			defer c.Close()
			return c.Health(b.Context())
		})
	})
	mib := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	b.Run("Put1MiB", func(b *testing.B) {
		box := s.newBox(b)
		path := box.Dir(b) + "/file"
		b.SetBytes(int64(len(mib)))
		measure(b, func() error {
			return second(box.Client.Write(b.Context(), path, bytes.NewReader(mib), writeOptions))
		})
	})
	b.Run("Get1MiB", func(b *testing.B) {
		box := s.newBox(b)
		path := box.Dir(b) + "/file"
		box.write(b, path, string(mib))
		b.SetBytes(int64(len(mib)))
		measure(b, func() error {
			r, _, err := box.Client.Read(b.Context(), path, 0, -1, asUser)
			if err != nil {
				return err
			}
			defer r.Close()
			return second(io.Copy(io.Discard, r))
		})
	})
	b.Run("Output16MiB", func(b *testing.B) {
		box := s.newBox(b)
		b.SetBytes(16 << 20)
		measure(b, func() error {
			return second(box.Run(b.Context(), Cmd{Shell: "head -c 16777216 /dev/zero", OnData: discard}))
		})
	})
}

// benchCreate measures from Create to the first output of print(1), or of
// echo 1 where there is no Python.
func benchCreate(b *testing.B, s *suite) {
	st := s.open(b)
	c := Cmd{Argv: []string{"/bin/echo", "1"}}
	if s.h.Python != "" {
		c = Python(s.h.Python, "print(1)")
	}
	var create, destroy samples
	for b.Loop() {
		began := time.Now()
		box, err := st.Create(b.Context(), s.h.Spec())
		if err != nil {
			b.Fatal(err)
		}
		client := guestapi.NewClient(box.Dial)
		p, err := (&Box{Box: box, Client: client}).Start(b.Context(), c)
		if err == nil {
			_, err = p.Next()
		}
		create = append(create, time.Since(began))
		if err != nil {
			b.Error(err)
		} else {
			p.Close()
		}
		client.Close()
		began = time.Now()
		if err := box.Destroy(b.Context()); err != nil {
			b.Fatal(err)
		}
		destroy = append(destroy, time.Since(began))
	}
	create.report(b, "")
	destroy.report(b, "destroy-")
}

type samples []time.Duration

func (s samples) report(b *testing.B, prefix string) {
	if len(s) == 0 {
		return
	}
	slices.Sort(s)
	ms := func(q int) float64 { return float64(s[min(len(s)*q/100, len(s)-1)].Microseconds()) / 1000 }
	b.ReportMetric(ms(50), prefix+"p50-ms")
	b.ReportMetric(ms(99), prefix+"p99-ms")
}

// measure runs one b.N times and reports the distribution of its times.
func measure(b *testing.B, one func() error) {
	b.Helper()
	var s samples
	for b.Loop() {
		began := time.Now()
		if err := one(); err != nil {
			b.Fatal(err)
		}
		s = append(s, time.Since(began))
	}
	s.report(b, "")
}
