//go:build unix

package audit

import (
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A disk that takes only a part of a record has the records before it.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if os.Getenv("AUDIT_FULL_DISK") != "" {
		dir = os.Getenv("AUDIT_FULL_DISK")
		// The limit of a file's size stands for the full disk. Go ignores SIGXFSZ.
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4 << 10, Max: 4 << 10}); err != nil {
			t.Fatal(err)
		}
		l := open(t, Options{Dir: dir})
		r := NewRecorder(RecorderOptions{Log: l, Required: true, Slog: slog.New(slog.DiscardHandler)})
		for i := 0; ; i++ {
			done := false
			err := r.Do(t.Context(), Record{Action: RunStart}, func(*Record) error { done = true; return nil })
			if err == nil {
				continue
			}
			if done || !errors.Is(err, sandbox.Unavailable) || i == 0 {
				t.Fatalf("action %d was done: %v, %v", i, done, err)
			}
			return
		}
	}
	// The limit is for a whole process, so the test runs itself again.
	cmd := exec.Command(os.Args[0], "-test.run", "^TestFullDisk$")
	cmd.Env = append(os.Environ(), "AUDIT_FULL_DISK="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	r, err := Verify(dir)
	if err != nil || r.Records < 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	add(t, open(t, Options{Dir: dir}), 1)
	verified(t, dir, r.Last.Seq+1)
}
