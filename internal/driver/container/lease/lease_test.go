package lease

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A fakeGuest records the terms that it is told. It answers when hang is closed, if
// there is one.
type fakeGuest struct {
	mu    sync.Mutex
	begun []guestapi.LeaseTerms
	set   []guestapi.LeaseTerms
	err   error
	hang  chan struct{}
}

func (g *fakeGuest) BeginLease(_ context.Context, _ []byte, t guestapi.LeaseTerms) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.begun = append(g.begun, t)
	return g.err
}

func (g *fakeGuest) SetLease(ctx context.Context, _ []byte, t guestapi.LeaseTerms) error {
	if g.hang != nil {
		select {
		case <-g.hang:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set = append(g.set, t)
	return g.err
}

func (g *fakeGuest) told() []guestapi.LeaseTerms {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]guestapi.LeaseTerms{}, g.set...)
}

var detached = &driver.Spec{Detached: true}

func TestHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{}
		h := NewHolder(NewGrant(detached, 0), g)
		l := driver.Lease{End: time.Now().Add(time.Hour), Idle: 10 * time.Minute, Busy: time.Now().Add(30 * time.Minute)}
		if err := h.Begin(t.Context(), &driver.Lease{}); err != nil {
			t.Fatal(err)
		}
		if len(g.begun) != 1 || g.begun[0].Hold != DefaultHold || g.begun[0].Left() != DefaultHold {
			t.Errorf("first terms: %+v, want those of an empty lease", g.begun)
		}
		if err := h.Set(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultHold + time.Second)
		synctest.Wait()
		h.Stop()
		var want []guestapi.LeaseTerms
		for _, at := range []time.Duration{0, 20 * time.Second, 40 * time.Second, time.Minute} {
			want = append(want, guestapi.LeaseTerms{Hold: DefaultHold, Idle: 10 * time.Minute, Busy: 30*time.Minute - at, End: time.Hour - at})
		}
		if diff := cmp.Diff(want, g.told()); diff != "" {
			t.Errorf("terms in a minute, -want +got:\n%s", diff)
		}
		time.Sleep(10 * DefaultHold)
		if n := len(g.told()); n != len(want) {
			t.Errorf("%d terms after Stop", n-len(want))
		}
		if err := h.Set(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * DefaultHold)
		if n := len(g.told()); n != len(want)+1 {
			t.Errorf("Set after Stop: %d terms, want one, which is not renewed", n-len(want))
		}
	})
}

// TestHolderRenewsAfterErrors has a guest that does not answer for a while: the
// caller is not held, and the renewal goes on later.
func TestHolderRenewsAfterErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{hang: make(chan struct{})}
		h := NewHolder(NewGrant(detached, 0), g)
		defer h.Stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := h.Set(ctx, driver.Lease{}); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("Set of a guest that hangs: %v", err)
		}
		time.Sleep(3 * DefaultHold)
		if n := len(g.told()); n != 0 {
			t.Errorf("the guest took %d terms", n)
		}
		close(g.hang)
		time.Sleep(DefaultHold)
		if len(g.told()) == 0 {
			t.Error("no renewal after the guest answers again")
		}
	})
}

// TestHolderWithoutLease has boxes that take no lease: an attached one, one that an
// earlier program made, and one whose order has no lease yet.
func TestHolderWithoutLease(t *testing.T) {
	if g := NewGrant(&driver.Spec{}, 0); g != nil {
		t.Errorf("an attached box has the grant %+v", g)
	}
	g := &fakeGuest{}
	h := NewHolder(nil, g)
	if err := errors.Join(h.Begin(t.Context(), nil), h.Begin(t.Context(), &driver.Lease{})); err != nil || len(g.begun) != 0 {
		t.Errorf("Begin without a grant: %v, %d terms", err, len(g.begun))
	}
	if err := h.Set(t.Context(), driver.Lease{}); sandbox.KindOf(err) != sandbox.Unsupported || len(g.set) != 0 {
		t.Errorf("Set without a grant: %v, %d terms; want kind unsupported", err, len(g.set))
	}
	h.Stop()
	synctest.Test(t, func(t *testing.T) {
		g := &fakeGuest{}
		h := NewHolder(NewGrant(detached, time.Second), g)
		defer h.Stop()
		if err := h.Begin(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if len(g.begun) != 1 || g.begun[0].Left() < 10*365*24*time.Hour || len(g.told()) != 0 {
			t.Errorf("a box without a lease: first terms %+v, then %+v; want one that does not end", g.begun, g.told())
		}
	})
}
