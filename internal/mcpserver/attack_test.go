package mcpserver

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// ask has a principal send a message over HTTP without a network. The answer goes
// to w.
func askHTTP(ctx context.Context, s *Server, w http.ResponseWriter, who sandbox.Principal, method, body string, headers ...string) {
	r := httptest.NewRequest(method, StreamablePath, strings.NewReader(body))
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
		if st := s.shares.sessions.Stats(); st.Used != 0 {
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
		most := int64(maxAnswers) / answerCost / 2
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
		if st := s.shares.answers.Stats(); st.Used != 0 {
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
		if n := s.shares.watches.Held("a"); n != maxWatches/2 {
			t.Errorf("a has %d watches", n)
		}
	})
}

// TestEvents has a principal fill the store of events.
func TestEvents(t *testing.T) {
	shares := NewShares(0)
	s := newEventStore(shares.events)
	as := func(who sandbox.Principal) context.Context {
		return auth.NewContext(t.Context(), auth.Identity{Principal: who})
	}
	for session, streams := range map[string][]string{"a": {"1", "2"}, "b": {"1"}} {
		for _, stream := range streams {
			if err := s.Open(as(sandbox.Principal(session)), session, stream); err != nil {
				t.Fatal(err)
			}
		}
	}
	small, large := []byte("small"), make([]byte, 1<<20)
	for i := range 3 {
		if err := s.Append(as("b"), "b", "1", append(small, byte('0'+i))); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		if err := s.Append(as("a"), "a", "1", large); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(as("a"), "a", "2", make([]byte, maxEvents+1)); err != nil {
		t.Fatal(err)
	}
	if used := shares.events.Stats().Used; used > maxEvents {
		t.Errorf("%d bytes are kept", used)
	}
	var got []string
	for data, err := range s.After(as("b"), "b", "1", 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(data))
	}
	if !slices.Equal(got, []string{"small1", "small2"}) {
		t.Errorf("b's events after the first: %q", got)
	}
	for _, stream := range []string{"1", "2"} {
		for _, err := range s.After(as("a"), "a", stream, -1) {
			if err == nil {
				t.Errorf("an event of a's stream %s is there that went", stream)
			}
		}
	}
	n := 0
	for _, err := range s.After(as("a"), "a", "1", 98) {
		if err == nil {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d of a's events after the 99th, want the last", n)
	}
	for _, session := range []string{"a", "b", "none"} {
		if err := s.SessionClosed(t.Context(), session); err != nil {
			t.Fatal(err)
		}
	}
	if st := shares.events.Stats(); st.Used != 0 {
		t.Errorf("events of no session are kept: %+v", st)
	}
}

// hostile is what the others' worst latency may grow by while one principal asks
// for all that it can.
const hostile = 5

// p99 is the latency that one in a hundred exceeds.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// TestFairness has one hostile principal among 2 and 20, for each resource of an
// MCP server that requests wait for. All of them do what takes 100 ms; the others
// one thing at a time, the hostile one as many as it can.
func TestFairness(t *testing.T) {
	const service = 100 * time.Millisecond
	resources := map[string]func(ctx context.Context, s *Server, who sandbox.Principal) error{
		"sessions": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ses, err := s.sessions.begin(ctx, auth.Identity{Principal: who})
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			ses.bind("", cancel)
			defer ses.gone()
			defer ses.use()() // it is never idle
			select {
			case <-time.After(service):
			case <-ctx.Done():
			}
			return nil
		},
		"answers": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, leave := s.ledgers.enter(ctx, nil)
			defer leave()
			size := int64(64 << 10)
			if who == "hostile" {
				size = maxResourceFile
			}
			if _, err := ledgerOf(ctx).take(ctx, who, size); err != nil {
				return err
			}
			time.Sleep(service)
			return nil
		},
		"large answers": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, leave := s.ledgers.enter(ctx, nil)
			defer leave()
			if _, err := ledgerOf(ctx).take(ctx, who, 1<<20); err != nil {
				return err
			}
			time.Sleep(service)
			return nil
		},
		"searches": func(ctx context.Context, s *Server, who sandbox.Principal) error {
			ctx, leave := s.ledgers.enter(ctx, nil)
			defer leave()
			e := countedEngine{s.engine, s.shares}
			return e.load(ctx, who, func() (int64, error) { time.Sleep(service / 10); return 1, nil })
		},
	}
	for name, do := range resources {
		for _, principals := range []int{2, 20} {
			t.Run(fmt.Sprintf("%s/%d", name, principals), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, _ := newTestServer(t, func(o *Options) { o.MaxSessions = 40 })
					measure := func(attacked bool) time.Duration {
						ctx, cancel := context.WithCancel(t.Context())
						var attack, others sync.WaitGroup
						for range 200 {
							if attacked {
								attack.Go(func() {
									for ctx.Err() == nil {
										if do(ctx, s, "hostile") != nil {
											time.Sleep(time.Millisecond)
										}
									}
								})
							}
						}
						synctest.Wait()
						var mu sync.Mutex
						var took []time.Duration
						for i := range principals - 1 {
							others.Go(func() {
								time.Sleep(time.Duration(i) * time.Millisecond)
								for range 50 {
									began := time.Now()
									if err := do(ctx, s, sandbox.Principal(fmt.Sprint("other", i))); err != nil {
										t.Errorf("other %d: %v", i, err)
									}
									mu.Lock()
									took = append(took, time.Since(began))
									mu.Unlock()
									time.Sleep(service / 7)
								}
							})
						}
						others.Wait()
						cancel()
						attack.Wait()
						return p99(took)
					}
					idle, attacked := measure(false), measure(true)
					t.Logf("p99 %v idle, %v attacked", idle, attacked)
					if attacked > hostile*idle {
						t.Errorf("the others' p99 is %v, and %v while one is hostile", idle, attacked)
					}
				})
			})
		}
	}
}

// TestEventStreams has a session make more requests than it may have streams.
func TestEventStreams(t *testing.T) {
	shares := NewShares(0)
	s := newEventStore(shares.events)
	const more = 100
	for i := range maxEventStreams + more {
		stream := fmt.Sprint(i)
		if err := s.Open(t.Context(), "s", stream); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(t.Context(), "s", stream, []byte("text")); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(s.sessions["s"].streams); n != maxEventStreams {
		t.Errorf("%d streams are kept, want %d", n, maxEventStreams)
	}
	if used, want := shares.events.Stats().Used, int64(maxEventStreams*(4+eventCost)); used != want {
		t.Errorf("%d bytes are held, want %d", used, want)
	}
	if err := s.Append(t.Context(), "s", "0", []byte("late")); err != nil {
		t.Fatal(err)
	}
	for stream, kept := range map[string]bool{"0": false, fmt.Sprint(more): true} {
		for _, err := range s.After(t.Context(), "s", stream, -1) {
			if (err == nil) != kept {
				t.Errorf("an event of stream %s: %v", stream, err)
			}
		}
	}
}

// TestBatchIsBounded sends more messages in one request than it may have.
func TestBatchIsBounded(t *testing.T) {
	message := `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	batch := func(n int) []byte {
		return []byte(" [" + strings.TrimSuffix(strings.Repeat(message+",", n), ",") + "]")
	}
	for n, want := range map[int]int{1: 1, maxBatch: maxBatch, maxBatch + 1: maxBatch + 1} {
		if got := batchSize(batch(n)); got != want {
			t.Errorf("%d messages count as %d", n, got)
		}
	}
	if got := batchSize([]byte(message)); got != 0 {
		t.Errorf("a message alone counts as %d", got)
	}
	s, _ := newTestServer(t, nil)
	for n, refused := range map[int]bool{maxBatch: false, maxBatch + 1: true} {
		r := httptest.NewRequest(http.MethodPost, StreamablePath, bytes.NewReader(batch(n)))
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
