package checkpoint

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestStreams counts the sockets of this process as those of a sentry.
func TestStreams(t *testing.T) {
	socket := func() *os.File {
		t.Helper()
		fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fds[0]), "socket")
		t.Cleanup(func() { f.Close() })
		if err := unix.Close(fds[1]); err != nil {
			t.Fatal(err)
		}
		return f
	}
	held := func(s *Streams) int {
		t.Helper()
		f, err := ReadSentryFiles(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		return s.Held(f)
	}
	var s Streams
	socket() // the sentry's own
	stream := socket()
	if err := s.Add(stream); err != nil {
		t.Fatal(err)
	}
	f, err := ReadSentryFiles(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	s.Started(f)
	if n := held(&s); n != 1 {
		t.Errorf("%d streams, want the one that was given", n)
	}
	another := socket() // from a supervisor that this one does not know
	if n := held(&s); n != 2 {
		t.Errorf("after another stream: %d streams, want both", n)
	}
	another.Close()
	stream.Close()
	if n := held(&s); n != 0 {
		t.Errorf("%d streams after their end", n)
	}
	given, err := s.Give(socket())
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if n := s.Coming(); n != 1 {
		t.Errorf("%d streams are coming, want the one whose dial began before the save", n)
	}
	if given(); s.Coming() != 0 {
		t.Errorf("%d streams are coming after the end of the dial", s.Coming())
	}
	if _, err := s.Give(socket()); err == nil || s.Coming() != 0 {
		t.Errorf("a stream was given during a save: %v, %d coming", err, s.Coming())
	}
}
