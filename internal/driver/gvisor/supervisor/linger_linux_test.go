package supervisor

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLeaseOver has another server be there from the end of the idle time on, and
// leave later.
func TestLeaseOver(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		end, idle, othersLeave, want time.Duration
	}{
		"alone":                          {time.Hour, 20 * time.Second, 0, 20 * time.Second},
		"idle again after another":       {time.Hour, 20 * time.Second, 45 * time.Second, (50 + 20) * time.Second},
		"another leaves before the end":  {time.Minute, 20 * time.Second, 45 * time.Second, time.Minute},
		"another leaves after the end":   {time.Minute, 20 * time.Second, 65 * time.Second, 80 * time.Second},
		"another without any idle time":  {time.Hour, 0, 45 * time.Second, 60 * time.Second},
		"another from a lease that ends": {0, time.Hour, 10 * time.Second, 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			l := &lease{Lease: driver.Lease{End: begin.Add(c.end), Idle: c.idle}}
			after := time.Duration(0)
			for ; after < 2*time.Hour; after += lingerLook {
				if l.over(begin, begin.Add(after), func() bool { return after < c.othersLeave }) {
					break
				}
			}
			if after != c.want {
				t.Errorf("over after %v, want %v", after, c.want)
			}
			if !l.End.Equal(begin.Add(c.end)) {
				t.Errorf("the lease ends at %v now, %v later than before", l.End, l.End.Sub(begin.Add(c.end)))
			}
		})
	}
}

// TestLeaseOfHangingDirectory sets a lease while the box's directory hangs: its
// holder file is a pipe that has no reader. Requests for other boxes must go on.
func TestLeaseOfHangingDirectory(t *testing.T) {
	id := sandbox.NewID()
	b := &box{dir: t.TempDir(), record: message.Record{Spec: driver.Spec{ID: id, Detached: true}}}
	s := &supervisor{name: "name", boxes: map[string]*box{id: b}}
	path := filepath.Join(b.dir, holderFile)
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	set := make(chan error, 1)
	go func() { set <- s.lease(b, driver.Lease{}) }()
	time.Sleep(200 * time.Millisecond) // until the file is opened
	select {
	case err := <-set:
		t.Fatalf("the file does not hang: %v", err)
	default:
	}
	if s.mu.TryLock() {
		s.mu.Unlock()
	} else {
		t.Error("the lock of all boxes is held")
	}
	name, err := os.ReadFile(path)
	if err != nil || string(name) != s.name {
		t.Errorf("holder is %q, %v", name, err)
	}
	if err := <-set; err != nil {
		t.Error(err)
	}
	if b.lease == nil {
		t.Fatal("there is no lease")
	}
	b.dropLeaseLocked()
}
