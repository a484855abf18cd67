package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair/fairtest"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/ledger"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/transport"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ask has a principal send a message over HTTP without a network. The answer goes
// to w.
func askHTTP(ctx context.Context, s *Server, w http.ResponseWriter, who sandbox.Principal, method, body string, headers ...string) {
	r := httptest.NewRequest(method, transport.StreamablePath, strings.NewReader(body))
	r = r.WithContext(auth.NewContext(ctx, auth.Identity{Principal: who, Scopes: auth.Scopes()}))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	s.Handler().ServeHTTP(w, r)
}

// asked is askHTTP with the answer kept.
func asked(ctx context.Context, s *Server, who sandbox.Principal, body string, headers ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	askHTTP(ctx, s, w, who, "POST", body, headers...)
	return w
}

// TestLeakedSessions has a principal open sessions, and leave them.
func TestLeakedSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, func(o *Options) { o.MaxSessions = 20 })
		for i := range 25 {
			if w := asked(t.Context(), s, "a", initialize); w.Code != 200 {
				t.Fatalf("a's session %d: %d", i, w.Code)
			}
		}
		var sessions []string
		for range 10 {
			w := asked(t.Context(), s, "b", initialize)
			if w.Code != 200 {
				t.Fatalf("b's session: %d", w.Code)
			}
			sessions = append(sessions, w.Header().Get(sessionHeader))
		}
		for range 25 {
			asked(t.Context(), s, "a", initialize)
		}
		for i, id := range sessions {
			if w := asked(t.Context(), s, "b", `{"jsonrpc":"2.0","id":2,"method":"ping"}`, sessionHeader, id); w.Code != 200 {
				t.Errorf("b's session %d, within its share: %d", i, w.Code)
			}
		}
		s.End(func(auth.Identity) bool { return true })
		synctest.Wait()
		if st := s.shares.Sessions.Stats(); st.Used != 0 {
			t.Errorf("places are held with no session open: %+v", st)
		}
	})
}

// readingEngine counts the bytes of files that were read.
type readingEngine struct {
	*fakeEngine
	read atomic.Int64
}

func (e *readingEngine) ReadFile(ctx context.Context, p sandbox.Principal, id, name string, offset, length int64) (io.ReadCloser, int64, error) {
	f, size, err := e.fakeEngine.ReadFile(ctx, p, id, name, offset, length)
	if err != nil {
		return nil, 0, err
	}
	return io.NopCloser(io.TeeReader(f, countWriter{&e.read})), size, nil
}

type countWriter struct{ n *atomic.Int64 }

func (c countWriter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// stuckWriter is a client that reads nothing until it is let.
type stuckWriter struct {
	*httptest.ResponseRecorder
	let chan struct{}
}

func (w stuckWriter) Write(b []byte) (int, error) {
	<-w.let
	return w.ResponseRecorder.Write(b)
}

// TestManyReads has a principal ask for many large files at one time, and take no
// answer.
func TestManyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &readingEngine{fakeEngine: newFakeEngine()}
		s, _ := newTestServer(t, func(o *Options) { o.Engine = e })
		var requests [2]string
		for i, who := range []sandbox.Principal{"a", "b"} {
			sb, err := e.Create(t.Context(), who, sandbox.CreateRequest{})
			if err != nil {
				t.Fatal(err)
			}
			size := []int{maxResourceFile, 100}[i]
			if err := e.WriteFile(t.Context(), who, sb.ID, "/f", strings.NewReader(strings.Repeat("x", size)), false); err != nil {
				t.Fatal(err)
			}
			requests[i] = "sandbox://" + sb.ID + "/files/f"
		}
		ctx, leave := context.WithCancel(t.Context())
		read := func(w http.ResponseWriter, i int) {
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":"resources/read","params":{"uri":%q,%s}}`, requests[i], modernMeta)
			askHTTP(ctx, s, w, []sandbox.Principal{"a", "b"}[i], "POST", body,
				versionHeader, firstModern, "Mcp-Method", "resources/read", "Mcp-Name", requests[i])
		}
		let := make(chan struct{})
		var wg sync.WaitGroup
		for range 60 {
			wg.Go(func() { read(stuckWriter{httptest.NewRecorder(), let}, 0) })
		}
		synctest.Wait()
		most := s.shares.Answers.Stats().Total / ledger.AnswerCost / 2
		if n := e.read.Load(); n > most || n == 0 {
			t.Errorf("the server has read %d bytes for answers that do not leave, want at most %d", n, most)
		}
		for range 3 {
			began := time.Now()
			w := httptest.NewRecorder()
			read(w, 1)
			if !strings.Contains(w.Body.String(), strings.Repeat("x", 100)) || time.Since(began) != 0 {
				t.Errorf("b's small file, after %v: %d %.300s", time.Since(began), w.Code, w.Body)
			}
		}
		leave() // the clients go
		close(let)
		wg.Wait()
		synctest.Wait()
		if st := s.shares.Answers.Stats(); st.Used != 0 {
			t.Errorf("something is held for answers that left: %+v", st)
		}
	})
}

// TestManyWatches has a principal subscribe to more than there may be.
func TestManyWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, _ := newTestServer(t, nil)
		ctx := t.Context()
		reserve := func(who sandbox.Principal, i int) error {
			uri := fmt.Sprintf("run://%s-%d/output", who, i)
			k, err := s.watch.reserve(ctx, auth.Identity{Principal: who}, uri)
			if err != nil {
				return err
			}
			s.watch.mu.Lock()
			defer s.watch.mu.Unlock()
			k.cancel = func() { close(k.done) }
			s.watch.watches[uri] = k
			return nil
		}
		maxWatches := int(s.shares.Watches.Stats().Total)
		for i := range maxWatches {
			if err := reserve("a", i); err != nil {
				t.Fatal(err)
			}
		}
		if err := reserve("a", maxWatches); err == nil {
			t.Error("a principal watches more than there may be")
		}
		began := time.Now()
		for i := range maxWatches / 2 {
			if err := reserve("b", i); err != nil {
				t.Fatalf("b's watch %d: %v", i, err)
			}
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("b's watches took %v", took)
		}
		if n := s.shares.Watches.Held("a"); n != int64(maxWatches/2) {
			t.Errorf("a has %d watches", n)
		}
	})
}

// TestFairness has one hostile principal among others, for each resource of a call
// that requests wait for.
func TestFairness(t *testing.T) {
	start := func(t *testing.T) *Server {
		s, _ := newTestServer(t, nil)
		return s
	}
	resources := map[string]func(ctx context.Context, s *Server, who sandbox.Principal) error{
		"answers": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, end, err := s.transport.Begin(ctx, auth.Identity{Principal: who}, "", nil)
			if err != nil {
				return err
			}
			defer end()
			size := int64(64 << 10)
			if who == fairtest.Hostile {
				size = maxResourceFile
			}
			if _, err := ledger.Of(ctx).Take(ctx, who, size); err != nil {
				return err
			}
			time.Sleep(fairtest.Service)
			return nil
		},
		"large answers": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, end, err := s.transport.Begin(ctx, auth.Identity{Principal: who}, "", nil)
			if err != nil {
				return err
			}
			defer end()
			if _, err := ledger.Of(ctx).Take(ctx, who, 1<<20); err != nil {
				return err
			}
			time.Sleep(fairtest.Service)
			return nil
		},
		"searches": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, end, err := s.transport.Begin(ctx, auth.Identity{Principal: who}, "", nil)
			if err != nil {
				return err
			}
			defer end()
			e := countedEngine{s.engine, s.shares.Searches}
			return e.load(ctx, who, func() (int64, error) { time.Sleep(fairtest.Service / 10); return 1, nil })
		},
	}
	for name, use := range resources {
		t.Run(name, func(t *testing.T) { fairtest.Run(t, start, use) })
	}
}

// TestBatchIsBounded sends more messages in one request than it may have.
func TestBatchIsBounded(t *testing.T) {
	message := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := func(n int) []byte {
		return []byte(" [" + strings.TrimSuffix(strings.Repeat(message+",", n), ",") + "]")
	}
	s, _ := newTestServer(t, nil)
	for n, refused := range map[int]bool{32: false, 33: true} {
		r := httptest.NewRequest(http.MethodPost, transport.StreamablePath, bytes.NewReader(batch(n)))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r.WithContext(auth.NewContext(r.Context(), auth.Local())))
		if got := strings.Contains(w.Body.String(), "may have 32"); got != refused {
			t.Errorf("a batch of %d: %d %.200s", n, w.Code, w.Body)
		}
	}
}

// TestSearchIsBounded refuses a pattern that takes too long for each byte, and ends
// a search whose caller is gone.
func TestSearchIsBounded(t *testing.T) {
	if _, err := compileSearch(`((((a?){0,9}){0,10}){0,10}b|(((a?){0,9}){0,10}){0,10}c)`); err == nil {
		t.Error("a pattern of thousands of steps was taken")
	}
	for _, pattern := range []string{`error|warning`, `^\s*at .*\(.*:\d+\)$`, `[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`} {
		if _, err := compileSearch(pattern); err != nil {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}
