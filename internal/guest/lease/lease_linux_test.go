package lease

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A caller sends requests to a lease.
type caller struct {
	t   *testing.T
	mux *http.ServeMux
	key []byte
}

func newCaller(t *testing.T, l *Lease) *caller {
	c := &caller{t, http.NewServeMux(), guestapi.NewLeaseKey()}
	l.Routes(c.mux)
	return c
}

// ask sends a request, and returns the status and the next challenge.
func (c *caller) ask(in guestapi.LeaseRequest) (status int, challenge []byte) {
	c.t.Helper()
	body, err := json.Marshal(in)
	if err != nil {
		c.t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodPost, guestapi.PathLease, bytes.NewReader(body))
	r.Header.Set("Content-Type", guestapi.ContentTypeUnary)
	w := httptest.NewRecorder()
	c.mux.ServeHTTP(w, r)
	var out guestapi.LeaseReply
	if w.Code == http.StatusOK {
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
			c.t.Fatal(err)
		}
	}
	return w.Code, out.Challenge
}

func terms(t guestapi.LeaseTerms) []byte {
	text, _ := json.Marshal(t)
	return text
}

func (c *caller) begin(t guestapi.LeaseTerms) {
	c.t.Helper()
	if status, _ := c.ask(guestapi.LeaseRequest{Key: c.key, Terms: terms(t)}); status != http.StatusOK {
		c.t.Fatalf("the first terms: status %d", status)
	}
}

func (c *caller) set(t guestapi.LeaseTerms) {
	c.t.Helper()
	_, challenge := c.ask(guestapi.LeaseRequest{})
	if status, _ := c.ask(guestapi.LeaseRequest{Terms: terms(t), Seal: guestapi.SealLease(c.key, challenge, terms(t))}); status != http.StatusOK {
		c.t.Fatalf("terms with a seal: status %d", status)
	}
}

// isOver reports whether a lease is over.
func isOver(l *Lease) bool {
	synctest.Wait()
	select {
	case <-l.Over():
		return true
	default:
		return false
	}
}

// lasts checks that a lease ends after d, and not before.
func lasts(t *testing.T, l *Lease, d time.Duration) {
	t.Helper()
	time.Sleep(d - time.Millisecond)
	if isOver(l) {
		t.Fatalf("the lease is over before %v", d)
	}
	time.Sleep(2 * time.Millisecond)
	if !isOver(l) {
		t.Fatalf("the lease is not over after %v", d)
	}
}

func TestLeaseEnds(t *testing.T) {
	const s = time.Second
	for name, c := range map[string]struct {
		terms guestapi.LeaseTerms
		want  time.Duration
	}{
		"idle after the hold": {guestapi.LeaseTerms{Hold: 60 * s, Idle: 10 * s, End: 1000 * s}, 70 * s},
		"busy":                {guestapi.LeaseTerms{Hold: 60 * s, Idle: 10 * s, Busy: 300 * s, End: 1000 * s}, 300 * s},
		"end before idle":     {guestapi.LeaseTerms{Hold: 60 * s, Idle: 100 * s, Busy: 300 * s, End: 80 * s}, 80 * s},
		"end while held":      {guestapi.LeaseTerms{Hold: 60 * s, Idle: 100 * s, End: -5 * s}, 60 * s},
		"empty":               {guestapi.LeaseTerms{Hold: 60 * s}, 60 * s},
		"too large":           {guestapi.LeaseTerms{Hold: 60 * s, Idle: 1<<63 - 1, Busy: 1<<63 - 1, End: 90 * s}, 90 * s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := New(0)
				newCaller(t, l).begin(c.terms)
				lasts(t, l, c.want)
			})
		})
	}
}

func TestLeaseWithoutTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lasts(t, New(time.Minute), time.Minute)
		l := New(0)
		time.Sleep(1000 * time.Hour)
		if isOver(l) {
			t.Error("a lease without terms and without a time for them is over")
		}
	})
}

// TestLeaseRenewed sends terms before the last ones are over: only the new ones
// count, whether they are longer or shorter.
func TestLeaseRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Minute)
		c := newCaller(t, l)
		c.begin(guestapi.LeaseTerms{Hold: time.Minute})
		for range 100 {
			time.Sleep(59 * time.Second)
			c.set(guestapi.LeaseTerms{Hold: time.Minute})
		}
		c.set(guestapi.LeaseTerms{Hold: time.Minute, Idle: time.Hour, End: 24 * time.Hour})
		time.Sleep(30 * time.Minute)
		c.set(guestapi.LeaseTerms{Hold: time.Second, End: 24 * time.Hour})
		lasts(t, l, time.Second)
	})
}

// TestLeaseNeedsSeal tries all that root of the sandbox can send: without the key, it
// sets no terms. What it saw of the server's requests has no use.
func TestLeaseNeedsSeal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(time.Minute)
		c := newCaller(t, l)
		if status, _ := c.ask(guestapi.LeaseRequest{Key: c.key[1:], Terms: terms(guestapi.LeaseTerms{})}); status == http.StatusOK {
			t.Error("a short key is taken")
		}
		c.begin(guestapi.LeaseTerms{Hold: time.Minute})
		long := terms(guestapi.LeaseTerms{Hold: time.Hour})
		refused := func(what string, in guestapi.LeaseRequest) {
			t.Helper()
			if status, _ := c.ask(in); status == http.StatusOK {
				t.Errorf("%s are taken", what)
			}
		}
		refused("terms with another key", guestapi.LeaseRequest{Key: guestapi.NewLeaseKey(), Terms: long})
		refused("terms without a seal", guestapi.LeaseRequest{Terms: long})
		_, challenge := c.ask(guestapi.LeaseRequest{})
		refused("terms with a seal by another key", guestapi.LeaseRequest{Terms: long, Seal: guestapi.SealLease(nil, challenge, long)})
		_, challenge = c.ask(guestapi.LeaseRequest{})
		good := terms(guestapi.LeaseTerms{Hold: time.Minute})
		seal := guestapi.SealLease(c.key, challenge, good)
		refused("other terms under a seal", guestapi.LeaseRequest{Terms: long, Seal: seal})
		refused("terms after their challenge was used", guestapi.LeaseRequest{Terms: good, Seal: seal})
		_, challenge = c.ask(guestapi.LeaseRequest{})
		seal = guestapi.SealLease(c.key, challenge, good)
		time.Sleep(guestapi.ChallengeTime + time.Millisecond)
		refused("terms that were held back", guestapi.LeaseRequest{Terms: good, Seal: seal})
		_, challenge = c.ask(guestapi.LeaseRequest{})
		seal = guestapi.SealLease(c.key, challenge, good)
		if status, _ := c.ask(guestapi.LeaseRequest{Terms: good, Seal: seal}); status != http.StatusOK {
			t.Errorf("terms with a seal: status %d", status)
		}
		refused("terms for the second time", guestapi.LeaseRequest{Terms: good, Seal: seal})
		lasts(t, l, time.Minute)
	})
}

// TestLeaseOfStoppedGuest has the timer fire late, as after a pause: the holder gets
// one more hold, and only one.
func TestLeaseOfStoppedGuest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(0)
		c := newCaller(t, l)
		c.begin(guestapi.LeaseTerms{Hold: time.Minute})
		paused := func() {
			l.mu.Lock()
			l.ends = time.Now().Add(-time.Hour)
			l.mu.Unlock()
			l.due()
		}
		paused()
		if isOver(l) {
			t.Fatal("the lease is over at once after a pause")
		}
		c.set(guestapi.LeaseTerms{Hold: time.Minute})
		paused()
		lasts(t, l, time.Minute)

		l = New(0)
		newCaller(t, l).begin(guestapi.LeaseTerms{Hold: time.Minute})
		paused()
		paused()
		if !isOver(l) {
			t.Error("each pause prolongs the lease")
		}
	})
}
