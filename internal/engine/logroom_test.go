package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/engine/runlog"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// smallLogs has 16 MiB for the logs of runs that go on, and as much for others.
func smallLogs(o *Options) { o.LogSize, o.LogsSize = runlog.MinSize, 32*mib }

// logsOnDisk is what the files below the logs' directory hold.
func logsOnDisk(t *testing.T, dir string) (n int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "logs"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		n += info.Size()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// runAs has a run of p write n bytes, and waits for its end.
func (e *Engine) runAs(t *testing.T, p sandbox.Principal, id string, n int) sandbox.Run {
	t.Helper()
	r, err := e.Start(t.Context(), p, sandbox.RunRequest{SandboxID: id, Argv: []string{"spew", fmt.Sprint(n)}})
	if err == nil {
		r, err = e.Wait(t.Context(), p, r.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (e *Engine) createAs(t *testing.T, p sandbox.Principal) string {
	t.Helper()
	s, err := e.Create(t.Context(), p, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	return s.ID
}

// TestLogsAreShared has one principal write logs without end. Those of the
// others stay, there is never more on the disk than there may be, and no other
// principal waits.
func TestLogsAreShared(t *testing.T) {
	for _, principals := range []int{2, 20} {
		t.Run(fmt.Sprint(principals), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				e := openWorld(t, newWorld(), dir, smallLogs)
				const each = 100_000 // bytes of each log, of four logs of each principal
				kept := map[string]sandbox.Principal{}
				var own []string
				for i := range principals - 1 {
					p := sandbox.Principal(fmt.Sprint("p", i))
					own = append(own, e.createAs(t, p))
					for range 4 {
						kept[e.runAs(t, p, own[i], each).ID] = p
					}
				}
				id := e.createAs(t, mallory)
				for i := range 64 {
					e.runAs(t, mallory, id, mib)
					if i%8 == 0 {
						e.mustSweep(t)
					}
					synctest.Wait()
					if got := logsOnDisk(t, dir); got > 32*mib {
						t.Fatalf("after %d runs the logs hold %s", i+1, sandbox.FormatBytes(got))
					}
				}
				begun := time.Now()
				kept[e.runAs(t, "p0", own[0], each).ID] = "p0"
				if took := time.Since(begun); took > 0 {
					t.Errorf("a run of another waited %v", took)
				}
				e.mustSweep(t)
				for run, p := range kept {
					out, err := e.Output(context.Background(), p, run, 2*each)
					if err != nil || len(out.Stdout) != each {
						t.Errorf("of a log of %s %d bytes are left, %v", p, len(out.Stdout), err)
					}
				}
			})
		})
	}
}

// TestRunningLogsAreShared has one principal fill the space for logs with runs
// that go on: its logs end, and say what they lack. Another's are whole.
func TestRunningLogsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		e := openWorld(t, newWorld(), dir, smallLogs)
		const each = 2*mib + 1000
		id := e.createAs(t, mallory)
		var runs []sandbox.Run
		for range 20 {
			r, err := e.Start(t.Context(), mallory, sandbox.RunRequest{SandboxID: id, Argv: []string{"say", fmt.Sprint(each)}})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		synctest.Wait()
		if got := logsOnDisk(t, dir); got > 10*mib {
			t.Errorf("one principal's running logs hold %s of 16 MiB", sandbox.FormatBytes(got))
		}
		mine := e.mustStart(t, sandbox.RunRequest{Argv: []string{"say", fmt.Sprint(each)}})
		synctest.Wait()
		if _, err := e.StopRun(t.Context(), alice, mine.ID); err != nil {
			t.Fatal(err)
		}
		if out, err := e.Output(t.Context(), alice, mine.ID, 4*mib); err != nil || len(out.Stdout) != each || out.Omitted.StdoutBytes != 0 {
			t.Errorf("another's log has %d bytes, %d omitted, %v", len(out.Stdout), out.Omitted.StdoutBytes, err)
		}
		for _, r := range runs {
			if _, err := e.StopRun(t.Context(), mallory, r.ID); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		kept, cut := 0, 0
		check := func(e *Engine) {
			for _, r := range runs {
				out, err := e.Output(t.Context(), mallory, r.ID, 4*mib)
				if err != nil || out.StdoutBytes != each {
					t.Fatalf("%d bytes, %v", out.StdoutBytes, err)
				}
				shown := strings.Count(out.Stdout, "x")
				kept += shown
				if out.Omitted.StdoutBytes > 0 {
					cut++
				}
				if int64(shown)+out.Omitted.StdoutBytes != each {
					t.Errorf("%d bytes are shown, %d omitted, of %d", shown, out.Omitted.StdoutBytes, each)
				}
			}
		}
		check(e)
		check(openWorld(t, newWorld(), dir, smallLogs)) // from the files alone
		if cut < 20 || kept < 2*4*mib {
			t.Errorf("looked at twice, %d logs are cut and %s are kept", cut, sandbox.FormatBytes(int64(kept)))
		}
		if st := e.runningLogs.Stats(); st.Used != 0 {
			t.Errorf("%d bytes are held for runs that ended", st.Used)
		}
	})
}

// TestLogsAfterRestart has a new server count what is there.
func TestLogsAfterRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		old := openWorld(t, newWorld(), dir, smallLogs)
		mine := old.runAs(t, alice, old.createAs(t, alice), mib)
		id := old.createAs(t, mallory)
		for range 12 {
			old.runAs(t, mallory, id, mib)
		}
		synctest.Wait()
		held := old.keptLogs.Stats().Used
		old.crash(t)

		e := openWorld(t, newWorld(), dir, smallLogs)
		e.mustSweep(t)
		synctest.Wait()
		if got := e.keptLogs.Stats(); got.Used != held || got.Principals != 2 {
			t.Errorf("after the restart %d bytes of %d principals are held, before %d", got.Used, got.Principals, held)
		}
		// What another process removed does not count any more.
		if err := e.store.DeleteRun(t.Context(), mine.ID); err != nil {
			t.Fatal(err)
		}
		e.mustSweep(t)
		if got := e.keptLogs.Held(alice); got != 0 {
			t.Errorf("%d bytes are held for a run that is gone", got)
		}
	})
}
