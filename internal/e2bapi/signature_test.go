package e2bapi

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// countingEngine counts the lists of all sandboxes that it was asked for.
type countingEngine struct {
	*fakeEngine
	lists atomic.Int64
}

func (e *countingEngine) Live(ctx context.Context) ([]string, error) {
	e.lists.Add(1)
	return e.fakeEngine.Live(ctx)
}

// countingAccess counts the tokens that it made.
type countingAccess struct {
	fakeAccess
	made atomic.Int64
}

func (a *countingAccess) Token(id string) string {
	a.made.Add(1)
	return a.fakeAccess.Token(id)
}

// TestForgedSignatures has strangers send signatures that no sandbox made.
func TestForgedSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &countingEngine{fakeEngine: &fakeEngine{boxes: map[string]*fakeBox{}}}
		for range 100 {
			e.add("alice", func(sb *sandbox.Sandbox) { sb.State = sandbox.Running })
		}
		access := &countingAccess{}
		s := New(Options{Engine: e, Auth: fakeAuth{}, Access: access})
		h := s.Authenticate(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a forged signature is good") }))
		began := time.Now()
		var wg sync.WaitGroup
		for i := range 500 {
			wg.Go(func() {
				r := httptest.NewRequest("GET", fmt.Sprintf("/files?path=a&signature=v1_%043d", i), nil)
				r.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%5)
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code != http.StatusUnauthorized && w.Code != http.StatusTooManyRequests {
					t.Errorf("forged signature %d: %d", i, w.Code)
				}
			})
		}
		wg.Wait()
		if took := time.Since(began); took > searchWait {
			t.Errorf("they took %v", took)
		}
		if n, most := e.lists.Load(), int64(time.Since(began)/listEvery)+2; n > most {
			t.Errorf("the sandboxes were listed %d times, want at most %d", n, most)
		}
		if n := access.made.Load(); n > 100 {
			t.Errorf("%d tokens were made for 100 sandboxes", n)
		}
	})
}

// TestRefusedKeys reads the error for a missing and for a wrong API key: each says
// how to get one.
func TestRefusedKeys(t *testing.T) {
	_, _, srv := newTest(t)
	for name, headers := range map[string][]string{"no key": nil, "a wrong key": {headerKey, Key("eve")}} {
		status, _, body := do(t, "GET", srv.URL+"/v2/sandboxes", "", headers...)
		if status != http.StatusUnauthorized || !strings.Contains(body, "glovebox token create NAME --e2b") || !strings.Contains(body, `"code":401`) {
			t.Errorf("%s: %d %s", name, status, body)
		}
	}
}

// TestRevokedOwner uses a sandbox's access token after its owner's API key was
// revoked.
func TestRevokedOwner(t *testing.T) {
	e, _, srv := newTest(t)
	for who, want := range map[sandbox.Principal]int{"alice": http.StatusOK, "revoked": http.StatusUnauthorized} {
		id := e.add(who, nil)
		e.answer = answer(http.StatusOK, "{}")
		status, _, body := do(t, "GET", srv.URL+"/files?path=a", "", headerSandbox, id, headerAccess, "access-"+id)
		if status != want {
			t.Errorf("the sandbox of %s: %d %s, want %d", who, status, body, want)
		}
	}
}

// TestSignatureIsReadOnce compares a forged signature with a hundred tokens: that must
// not cost more for a long query.
func TestSignatureIsReadOnce(t *testing.T) {
	cost := func(more int) uint64 {
		r := httptest.NewRequest("GET", fmt.Sprintf("/files?path=a&signature=v1_%043d&x=%s", 1, strings.Repeat("y&", more)), nil)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		sig, err := readSignature(r, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		for range 100 {
			if sig.by("token") {
				t.Fatal("a forged signature is good")
			}
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if short, long := cost(0), cost(4000); long > short+1<<20 {
		t.Errorf("a hundred comparisons take %d bytes with a short query, and %d with a long one", short, long)
	}
	r := httptest.NewRequest("GET", fmt.Sprintf("/files?path=a&signature=v1_%043d&x=%s", 1, strings.Repeat("y", maxSignedQuery)), nil)
	if _, err := readSignature(r, time.Now()); err == nil {
		t.Error("a query of any length is read")
	}
}
