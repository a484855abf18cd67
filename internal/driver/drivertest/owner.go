package drivertest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// ownerVariable is the environment variable of a re-executed test binary that
// acts as an owner. Its value is an order in JSON.
const ownerVariable = "GLOVEBOX_DRIVERTEST_OWNER"

// order is the input of an owner.
type order struct {
	Harness string
	Dir     string
	Spec    *driver.Spec
	// Midway makes the owner report before Create, so that the test can kill it
	// during Create.
	Midway bool
	// Lease, if not nil, is set for the box. Paused makes the owner pause it then.
	Lease  *driver.Lease
	Paused bool
}

// told is the owner's report on its box.
type told struct{ Ref, Err string }

// Main is the TestMain of a test package that runs the suite. In a process that
// the suite started as an owner, it acts as the owner; in others it runs the
// tests. It does not return.
func Main(m *testing.M, harnesses ...Harness) {
	text, ok := os.LookupEnv(ownerVariable)
	if !ok {
		os.Exit(m.Run())
	}
	os.Unsetenv(ownerVariable)
	if err := own(text, harnesses); err != nil {
		json.NewEncoder(os.Stdout).Encode(told{Err: err.Error()})
		os.Exit(1)
	}
	os.Exit(0)
}

// own creates a box, starts runs in it and reports its reference. It then waits
// until its input ends or it is killed.
func own(text string, harnesses []Harness) error {
	var o order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	for _, h := range harnesses {
		if h.Name != o.Harness {
			continue
		}
		d, err := h.Open(o.Dir)
		if err != nil {
			return err
		}
		defer d.Close()
		say := json.NewEncoder(os.Stdout)
		if o.Midway {
			if err := say.Encode(told{}); err != nil {
				return err
			}
		}
		ctx := context.Background()
		b, err := d.Create(ctx, o.Spec)
		if err != nil {
			return err
		}
		box := &Box{Box: b, Client: guestapi.NewClient(b.Dial)}
		if err := box.ownRuns(ctx); err != nil {
			return err
		}
		if o.Lease != nil {
			if ok, err := driver.SetLease(ctx, b, *o.Lease); err != nil || !ok {
				return fmt.Errorf("SetLease: %t, %w", ok, err)
			}
		}
		if o.Paused {
			if _, err := driver.Pause(ctx, b); err != nil {
				return err
			}
		}
		if err := say.Encode(told{Ref: b.Ref()}); err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	}
	return fmt.Errorf("no harness of name %q", o.Harness)
}

// The tags of an owner's runs. One waits for a file and then writes the rest of
// its output. One waits for a file and ends without a reader. One runs on and
// ignores signals.
const (
	waitingTag = "waiting"
	endedTag   = "ended"
	stayingTag = "staying"
)

func (b *Box) ownRuns(ctx context.Context) error {
	for _, c := range []Cmd{
		{Tag: waitingTag, Keep: true, Shell: "echo before; while [ ! -e go ]; do sleep 0.05; done; seq 1 3000; exit 8"},
		{Tag: endedTag, Keep: true, Shell: "while [ ! -e end ]; do sleep 0.05; done; echo first; exit 9"},
		{Tag: stayingTag, Keep: true, Shell: "trap '' TERM HUP INT PIPE; setsid sleep 600 & echo up; sleep 600"},
	} {
		p, err := b.Start(ctx, c)
		if err != nil {
			return err
		}
		// The owner reads the first output of each run and keeps its stream
		// open. The run endedTag is the exception: the owner closes its stream
		// before any output, so that another process can read all of it.
		if c.Tag == endedTag {
			if err := p.Close(); err != nil {
				return err
			}
			continue
		}
		if _, err := p.Next(); err != nil {
			return err
		}
	}
	return nil
}

// An owner is a process that owns a box.
type owner struct {
	cmd *exec.Cmd
	out *bufio.Reader
	in  io.Closer
	ref string
}

// own starts a process that owns a box in the state directory of st.
func (st *site) own(t testing.TB, o order) *owner {
	t.Helper()
	o.Harness, o.Dir = st.s.h.Name, st.dir
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), ownerVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ow := &owner{cmd: cmd, out: bufio.NewReader(out), in: in}
	t.Cleanup(ow.kill)
	ow.ref = ow.hear(t).Ref
	return ow
}

func (o *owner) hear(t testing.TB) told {
	t.Helper()
	stuck := time.AfterFunc(stepTime, func() { o.cmd.Process.Kill() })
	defer stuck.Stop()
	line, err := o.out.ReadString('\n')
	var x told
	if err == nil {
		err = json.Unmarshal([]byte(line), &x)
	}
	if err == nil && x.Err != "" {
		err = errors.New(x.Err)
	}
	if err != nil {
		t.Fatalf("the process that is to own a box: %v (was TestMain drivertest.Main, with this harness?)", err)
	}
	return x
}

// kill sends SIGKILL to the owner and waits for its end.
func (o *owner) kill() {
	o.cmd.Process.Kill()
	o.cmd.Wait()
}

// leave lets the owner exit without destroying its box.
func (o *owner) leave(t testing.TB) {
	t.Helper()
	o.in.Close()
	if err := o.cmd.Wait(); err != nil {
		t.Errorf("the owner's end: %v", err)
	}
}

// orphanTime is how long processes of an attached box may outlive its owner.
func (h *Harness) orphanTime() time.Duration {
	return cmp.Or(h.OrphanTime, time.Second) * raceFactor
}

// testOwner kills processes that own boxes.
func testOwner(t *testing.T, s *suite) {
	t.Run("AttachedKilled", func(t *testing.T) {
		ownerAttached(t, s, func(_ testing.TB, o *owner) { o.kill() })
	})
	t.Run("AttachedEnded", func(t *testing.T) {
		ownerAttached(t, s, func(t testing.TB, o *owner) { o.leave(t) })
	})
	t.Run("DetachedKilled", func(t *testing.T) {
		ownerDetached(t, s, func(_ testing.TB, o *owner) { o.kill() })
	})
	t.Run("DetachedEnded", func(t *testing.T) {
		ownerDetached(t, s, func(t testing.TB, o *owner) { o.leave(t) })
	})
	t.Run("KilledDuringCreate", func(t *testing.T) { ownerDuringCreate(t, s) })
}

// ownerAttached checks that an attached box ends with its owner.
func ownerAttached(t *testing.T, s *suite, end func(testing.TB, *owner)) {
	st := s.open(t)
	o := st.own(t, order{Spec: s.h.Spec()})
	a, err := st.Attach(step(t), o.ref)
	if err != nil {
		t.Fatalf("Attach to an attached box whose creator lives: %v", err)
	}
	box := NewBox(t, a)
	box.Answers(t, "while its owner lives")
	end(t, o)
	st.orphaned(t, o.ref)
	if err := box.Client.Health(step(t)); err == nil {
		t.Error("the guest of an attached box answers after its owner's end")
	}
	st.discardOrphans(t, "an attached box's owner ended")
}

// orphaned waits until the attached box ref, whose owner has ended, is gone.
func (st *site) orphaned(t testing.TB, ref string) {
	t.Helper()
	began := time.Now()
	for {
		alive := 0
		if st.s.h.Processes != nil {
			alive = len(st.s.h.Processes(t, st.dir, ref))
		}
		_, err := st.Attach(step(t), ref)
		if alive == 0 && driver.IsGone(err) {
			t.Logf("the box was gone %v after its owner", time.Since(began).Round(time.Millisecond))
			return
		}
		if most := st.s.h.orphanTime(); time.Since(began) > most {
			t.Errorf("%v after the end of its owner an attached box has %d processes, and Attach gives %v; want none within %v, and ErrGone",
				time.Since(began).Round(time.Millisecond), alive, err, most)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// discardOrphans discards the listed boxes until nothing is left, as a reaper
// does after an owner's end. A box that List omits must have no leftovers. Work
// that the owner began goes on for a while, so its boxes may appear in List
// late.
func (st *site) discardOrphans(t testing.TB, why string) {
	t.Helper()
	ctx := step(t)
	discarded := map[string]bool{}
	for deadline := time.Now().Add(settleTime); ; time.Sleep(50 * time.Millisecond) {
		var makers []int
		if st.s.h.Makers != nil {
			makers = st.s.h.Makers(t, st.dir) // before List, so that List includes their boxes
		}
		refs, err := st.List(ctx)
		if err != nil {
			t.Fatalf("List after %s: %v", why, err)
		}
		for _, ref := range refs {
			t.Logf("List returns %q after %s", ref, why)
			if discarded[ref] && len(makers) == 0 {
				t.Errorf("List returns %q again, which was discarded", ref)
			}
			discarded[ref] = true
			if err := st.Discard(ctx, ref); err != nil {
				t.Errorf("Discard after %s: %v", why, err)
			}
			if err := st.Discard(ctx, ref); err != nil {
				t.Errorf("Discard again: %v; it is idempotent", err)
			}
		}
		if len(makers) == 0 && len(refs) == 0 && (st.s.h.Leftovers == nil || len(st.s.h.Leftovers(t, st.dir)) == 0) {
			break
		}
		if time.Now().After(deadline) {
			if len(makers) > 0 {
				t.Errorf("the processes %v, which made boxes for the owner, live on after %s", makers, why)
			}
			break
		}
	}
	st.nothingLeft(t, "after "+why+" and each box of List was discarded")
}

// ownerDetached checks that a detached box, its runs and their output outlive
// the owner.
func ownerDetached(t *testing.T, s *suite, end func(testing.TB, *owner)) {
	st := s.open(t)
	if !st.Info().Features.Detach {
		t.Skip("the driver declares no detached boxes")
	}
	spec := s.h.Spec()
	spec.Detached = true
	o := st.own(t, order{Spec: spec})
	end(t, o)
	time.Sleep(s.h.orphanTime() / 2) // an attached box would end in this time

	again := s.openDir(t, st.dir)
	refs, err := again.List(step(t))
	if err != nil || len(refs) != 1 || refs[0] != o.ref {
		t.Errorf("List after the owner's end: %q, %v; want the box %q", refs, err, o.ref)
	}
	a, err := again.Attach(step(t), o.ref)
	if err != nil {
		t.Fatalf("Attach to a detached box after its owner's end: %v", err)
	}
	b := NewBox(t, a)
	b.Answers(t, "after the owner's end")
	ps, err := b.Client.Processes(step(t))
	pids := map[string]uint32{}
	for _, p := range ps {
		pids[p.Tag] = p.PID
	}
	if err != nil || pids[waitingTag] == 0 || pids[endedTag] == 0 || pids[stayingTag] == 0 {
		t.Errorf("the runs of before must be there: Processes gives %+v, %v", ps, err)
	}
	b.MustSh(t, "touch end")
	eventually(t, "a run that was told to end is alive", func() bool {
		return b.MustRun(t, Sh("test -e /proc/"+pidText(pids[endedTag]))).End.Code() != 0
	})
	if r, err := b.resume(t, endedTag); err != nil || r.Stdout != "first\n" || r.End.Code() != 9 {
		t.Errorf("a run that ended and was not taken: want its output and exit code 9, got %v, %v", r, err)
	}
	b.MustSh(t, "touch go; sleep 0.5")
	// The owner may have been killed before it read the output that was sent to
	// it.
	r, err := b.resume(t, waitingTag)
	if err != nil || strings.TrimPrefix(r.Stdout, "before\n") != numbers(3000) || r.End.Code() != 8 {
		t.Errorf("a run that went on while nobody was there: want its output and exit code 8, got %v, %v", r, err)
	}
	if _, err := a.Receipt(step(t)); err != nil {
		t.Errorf("Receipt of a box of an earlier process: %v", err)
	}
	if err := a.Destroy(step(t)); err != nil {
		t.Errorf("Destroy of a box of an earlier process: %v", err)
	}
	st.nothingLeft(t, "after Destroy of a box of an earlier process")
}

func (b *Box) resume(t testing.TB, tag string) (Result, error) {
	t.Helper()
	p, err := b.Client.Connect(step(t), guestapi.ProcessSelector{Tag: tag})
	if err != nil {
		return Result{}, err
	}
	defer p.Close()
	return Collect(p, nil)
}

// killedDuringCreate is the number of owners that the test kills during Create,
// at equal intervals.
const killedDuringCreate = 8

// ownerDuringCreate kills owners during Create. List must return every box that
// is left, and Discard must remove it.
func ownerDuringCreate(t *testing.T, s *suite) {
	st := s.open(t)
	for _, detached := range []bool{false, true} {
		if detached && !st.Info().Features.Detach {
			continue
		}
		spec := s.h.Spec()
		spec.Detached = detached
		whole := st.own(t, order{Spec: spec, Midway: true})
		began := time.Now()
		whole.hear(t)
		took := time.Since(began)
		whole.kill()
		st.discardOrphans(t, "the owner was killed after Create")
		for i := range time.Duration(killedDuringCreate) {
			delay := took * i / killedDuringCreate
			o := st.own(t, order{Spec: spec, Midway: true})
			time.Sleep(delay)
			o.kill()
			if !detached {
				refs, err := st.List(step(t))
				if err != nil {
					t.Fatalf("List after the owner was killed during Create: %v", err)
				}
				for _, ref := range refs {
					st.orphaned(t, ref)
				}
			}
			why := fmt.Sprintf("the owner was killed %v into Create (detached: %t)", delay.Round(time.Millisecond), detached)
			// A container engine continues a request after its client has ended.
			// On a busy machine that takes as long as Create does.
			time.Sleep(max(100*time.Millisecond*raceFactor, took))
			st.discardOrphans(t, why)
			if t.Failed() {
				return
			}
		}
	}
}
