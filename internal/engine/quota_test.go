package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const mib = 1 << 20

// openSpaces returns an engine on a world whose workspaces may hold 32 MiB.
func openSpaces(t *testing.T, change func(*Options)) (*Engine, *world) {
	t.Helper()
	w := newWorld()
	w.spaces = newWorldSpaces()
	e := openWorld(t, w, t.TempDir(), func(o *Options) {
		o.Workspaces = w.spaces
		o.WorkspaceQuota = sandbox.WorkspaceUsage{Bytes: 32 * mib}
		if change != nil {
			change(o)
		}
	})
	return e, w
}

// upload returns a request of E2B's protocol that writes a file.
func upload(ctx context.Context, path string, size int64) *http.Request {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://x"+guestapi.PathFiles+"?path="+path, io.LimitReader(endless{}, size))
	if err != nil {
		panic(err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	return req
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func (e *Engine) stopsFull(t *testing.T, id string) {
	t.Helper()
	s := e.mustGet(t, id)
	if s.State != sandbox.Stopped || !strings.Contains(s.Cause, "may hold 32 MiB") {
		t.Errorf("the sandbox is %s: %q; want it stopped because of what its workspace holds", s.State, s.Cause)
	}
}

// TestQuotaOfForwardedUpload uploads more than the quota by E2B's protocol.
func TestQuotaOfForwardedUpload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
		for _, path := range []string{sandbox.WorkDir + "/big", "big", ""} {
			resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, upload(t.Context(), path, 200*mib))
			if !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" {
				t.Errorf("upload to %q: %v, want exhausted with a hint", path, err)
			}
			if err == nil {
				resp.Body.Close()
			}
			if got := w.spaces.total(); got > 33*mib {
				t.Errorf("after the upload to %q the workspace holds %s", path, sandbox.FormatBytes(got))
			}
		}
		w.spaces.space("alice-w").grow(-100 * mib)
		time.Sleep(2 * time.Second)
		if got := e.mustGet(t, s.ID); got.State != sandbox.Running {
			t.Errorf("the sandbox is %s: %s", got.State, got.Cause)
		}
		resp, err := e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, upload(t.Context(), sandbox.WorkDir+"/ok", 20*mib))
		if err != nil {
			t.Fatalf("upload of what fits: %v", err)
		}
		resp.Body.Close()
		resp, err = e.Forward(alice, s.ID, sandbox.ProgramDefaults{Dir: "~"}, upload(t.Context(), "/tmp/x", 50*mib))
		if err != nil {
			t.Fatalf("upload to elsewhere: %v", err)
		}
		resp.Body.Close()
	})
}

// TestQuotaOfForwardedProcess starts a program by E2B's protocol that writes on
// and on.
func TestQuotaOfForwardedProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w", Restless: true})
		body := string(guestapi.AppendEnvelope(nil, 0, []byte(`{"process":{"cmd":"fill"}}`)))
		e.mustForward(t, s.ID, guestapi.ProcStart, body).Body.Close()
		time.Sleep(10 * time.Second)
		e.stopsFull(t, s.ID)
		if got := w.spaces.total(); got > 100*mib {
			t.Errorf("the workspace holds %s", sandbox.FormatBytes(got))
		}
	})
}

// TestQuotaOfBackgroundProcess has a run leave a program behind that writes on,
// while requests keep the sandbox awake.
func TestQuotaOfBackgroundProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
		w.only(t).files["/tmp/f"] = []byte("x")
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"leave", "20000000"}})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		for range 1000 {
			r, _, err := e.ReadFile(t.Context(), alice, s.ID, "/tmp/f", 0, -1)
			if err != nil {
				break
			}
			r.Close()
			time.Sleep(20 * time.Millisecond)
		}
		e.stopsFull(t, s.ID)
		if got := w.spaces.total(); got > 50*mib {
			t.Errorf("the workspace holds %s", sandbox.FormatBytes(got))
		}
	})
}

// TestQuotaOfBursts has a program that is no run write in bursts, and rest as long
// as the watcher looks whether it goes on.
func TestQuotaOfBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w", Restless: true})
		space := w.spaces.space("alice-w")
		for i := 0; i < 200 && e.mustGet(t, s.ID).State == sandbox.Running; i++ {
			space.grow(2 * mib)
			time.Sleep(3 * time.Second)
		}
		e.stopsFull(t, s.ID)
		if got := w.spaces.total(); got > 40*mib {
			t.Errorf("the workspace holds %s", sandbox.FormatBytes(got))
		}
	})
}

// TestQuotaWithoutCounts has the counts of a workspace fail, before and while it
// settles. No run waits for ever, and all is as before once counts succeed.
func TestQuotaWithoutCounts(t *testing.T) {
	for name, full := range map[string]bool{"Quiet": false, "Settling": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, w := openSpaces(t, nil)
				s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w", Restless: true})
				try := func(argv ...string) (sandbox.Run, error) {
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
					defer cancel()
					r, err := e.Start(ctx, alice, sandbox.RunRequest{SandboxID: s.ID, Argv: argv, Timeout: 5 * time.Minute})
					if err != nil {
						return r, err
					}
					return e.mustWait(t, r.ID), nil
				}
				if full {
					if r, err := try("fill", "1000000000"); err != nil || r.Verdict.Code != sandbox.DiskFull {
						t.Fatalf("%+v, %v", r.Verdict, err)
					}
					time.Sleep(60 * time.Millisecond) // it settles for four times as long
				} else if r, err := try("print", "x"); err != nil || r.Verdict.Code != sandbox.OK {
					t.Fatalf("%+v, %v", r.Verdict, err)
				}
				w.spaces.setBroken(true)
				time.Sleep(time.Minute)
				if _, err := try("print", "x"); errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a run waits while counts fail: %v", err)
				}
				w.spaces.setBroken(false)
				w.spaces.space("alice-w").grow(-10000 * mib)
				time.Sleep(time.Minute)
				if r, err := try("print", "x"); err != nil || r.Verdict.Code != sandbox.OK {
					t.Errorf("a run when counts succeed again: %+v, %v", r.Verdict, err)
				}
			})
		})
	}
}

// TestQuotaGoesOnAfterDiskFull fills a workspace again and again: each run is
// watched, also one that begins while another is ended, and what all of them
// write together has a bound.
func TestQuotaGoesOnAfterDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
		fill := sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"fill", "1000000000"}, Timeout: 5 * time.Minute}
		ended, stopped := 0, 0
		var refused error
		for refused == nil && ended < 200 {
			first, err := e.Start(t.Context(), alice, fill)
			if errors.Is(err, sandbox.Conflict) {
				if !strings.Contains(err.Error(), "may hold 32 MiB, and it holds far more") {
					t.Fatal(err)
				}
				stopped++
				fill.SandboxID = e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"}).ID
				continue
			}
			if refused = err; err != nil {
				break
			}
			time.Sleep(35 * time.Millisecond) // about when the first is seen
			if second, err := e.Start(t.Context(), alice, fill); err == nil {
				checkVerdict(t, e.mustWait(t, second.ID), sandbox.DiskFull, "")
				ended++
			}
			checkVerdict(t, e.mustWait(t, first.ID), sandbox.DiskFull, "")
			ended++
		}
		if ended < 4 || stopped > 1 || !errors.Is(refused, sandbox.Exhausted) || sandbox.HintOf(refused) == "" {
			t.Errorf("%d runs ended and %d sandboxes stopped, then %v; want at most one stopped, and a refusal with a hint", ended, stopped, refused)
		}
		if got := w.spaces.total(); got > 32*mib+256*mib+100*mib {
			t.Errorf("the workspace holds %s", sandbox.FormatBytes(got))
		}
		// Whoever cleans up can go on.
		w.spaces.space("alice-w").grow(-1000 * mib)
		time.Sleep(2 * time.Second)
		r := e.mustStart(t, sandbox.RunRequest{New: sandbox.CreateRequest{Workspace: "w"}, Argv: []string{"print", "x"}})
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
	})
}

// TestQuotaOfAllWorkspaces fills many workspaces of one principal at once.
func TestQuotaOfAllWorkspaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, func(o *Options) { o.PrincipalQuota = sandbox.WorkspaceUsage{Bytes: 64 * mib} })
		var runs []sandbox.Run
		for i := range 16 {
			runs = append(runs, e.mustStart(t, sandbox.RunRequest{
				New: sandbox.CreateRequest{Workspace: fmt.Sprint("w", i)}, Argv: []string{"fill", "10000000"}, Timeout: 5 * time.Minute,
			}))
		}
		for _, r := range runs {
			checkVerdict(t, e.mustWait(t, r.ID), sandbox.DiskFull, "this principal together")
		}
		if got := w.spaces.total(); got > 100*mib {
			t.Errorf("the workspaces hold %s together", sandbox.FormatBytes(got))
		}
		if _, err := e.PutFile(t.Context(), "alice-w0", "f", strings.NewReader("x"), 1); !errors.Is(err, sandbox.Exhausted) {
			t.Errorf("an upload when all are full: %v", err)
		}
	})
}

// TestQuotaOfUploadsAtOnce uploads to many workspaces of one principal at once.
func TestQuotaOfUploadsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, func(o *Options) { o.PrincipalQuota = sandbox.WorkspaceUsage{Bytes: 64 * mib} })
		done := make(chan error)
		for i := range 16 {
			s := e.mustCreate(t, sandbox.CreateRequest{Workspace: fmt.Sprint("w", i)})
			go func() {
				body := &slowReader{left: 30 * mib}
				if i%2 == 0 {
					_, err := e.PutFile(context.Background(), fmt.Sprint("alice-w", i), "f", body, -1)
					done <- err
					return
				}
				done <- e.WriteFile(context.Background(), alice, s.ID, sandbox.WorkDir+"/f", body, false)
			}()
		}
		full := 0
		for range 16 {
			if err := <-done; errors.Is(err, sandbox.Exhausted) {
				full++
			} else if err != nil {
				t.Error(err)
			}
		}
		if got := w.spaces.total(); got > 66*mib || full == 16 && got == 0 {
			t.Errorf("%d of 16 did not fit, and the workspaces hold %s together", full, sandbox.FormatBytes(got))
		}
	})
}

// A slowReader has 1 MiB each millisecond.
type slowReader struct{ left int64 }

func (r *slowReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Millisecond)
	n := min(int64(len(p)), r.left)
	r.left -= n
	return int(n), nil
}

// TestQuotaCostsNothingAtRest looks at what watching costs.
func TestQuotaCostsNothingAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, w := openSpaces(t, nil)
		keep := sandbox.Limits{Idle: 2 * time.Hour, Lifetime: 3 * time.Hour}
		s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w", Limits: keep})
		r := e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Argv: []string{"print", "x"}})
		e.mustWait(t, r.ID)
		time.Sleep(time.Second)
		looks, counts := w.spaces.work()
		time.Sleep(time.Hour)
		if l, c := w.spaces.work(); l != looks || c != counts {
			t.Errorf("a sandbox at rest was looked at %d times, and counted %d times", l-looks, c-counts)
		}
		restless := e.mustCreate(t, sandbox.CreateRequest{Workspace: "v", Limits: keep, Restless: true})
		_ = restless
		time.Sleep(time.Second)
		looks, counts = w.spaces.work()
		time.Sleep(10 * time.Second)
		l, c := w.spaces.work()
		if l -= looks; l == 0 || l > 1010 {
			t.Errorf("an awake sandbox was looked at %d times in ten seconds", l)
		}
		if c -= counts; c == 0 || c > 20 {
			t.Errorf("an awake sandbox was counted %d times in ten seconds", c)
		}
		// Another fills the disk: that has its workspace counted more often, and
		// not all the time.
		full := w.spaces.space("alice-v")
		full.grow(32 * mib)
		go func() {
			for range 10_000 {
				time.Sleep(time.Millisecond)
				w.spaces.space("other").grow(2 * mib)
			}
		}()
		_, counts = w.spaces.work()
		time.Sleep(10 * time.Second)
		if _, c := w.spaces.work(); c-counts > 2600 {
			t.Errorf("it was counted %d ms of ten seconds", c-counts)
		}
	})
}
