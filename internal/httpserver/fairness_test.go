package httpserver

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
)

// hostile is what the others' worst latency may grow by while one principal asks
// for all that it can.
const hostile = 5

// p99 is the latency that one in a hundred exceeds.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// serviceTime is what a request takes in these tests, whatever it is.
const serviceTime = 100 * time.Millisecond

// smallShares are shares of which a test can take all.
func smallShares() *Shares {
	pool := func(name string, total int64) *fair.Pool {
		return fair.New(fair.Options{Name: name, Total: total, MaxWaiting: maxRequests})
	}
	return &Shares{
		bodies:      fair.New(fair.Options{Name: "bodies", Total: 64 << 20, Small: smallBody, Reserve: 8 << 20}),
		requests:    pool("requests", 64),
		streams:     pool("streams", 64),
		connections: pool("connections", 512),
		newcomers:   pool("newcomers", 512),
		unknown:     pool("unknown", 256),
	}
}

// nothingHeld checks that no unit of the shares is held.
func nothingHeld(t *testing.T, shares *Shares) {
	t.Helper()
	for _, stats := range shares.Stats() {
		if st := stats(); st.Used != 0 {
			t.Errorf("something is held at the end: %+v", st)
		}
	}
}

// TestFairness has one hostile principal among 2 and 20, for each resource of the
// front door. The others ask one thing at a time, each of which takes 100 ms.
func TestFairness(t *testing.T) {
	do := func(s *Server, who, method, path string, body io.Reader) int {
		r := httptest.NewRequest(method, path, body)
		r.Host = "127.0.0.1:8080"
		r.Header.Set("Authorization", "Bearer good-"+who)
		w := httptest.NewRecorder()
		answerTo(s, w, r)
		return w.Code
	}
	for name, request := range map[string]func(s *Server, who string, hostile bool) int{
		"requests": func(s *Server, who string, _ bool) int { return do(s, who, "POST", "/mcp", strings.NewReader("{}")) },
		"bodies": func(s *Server, who string, hostile bool) int {
			size := 1 << 10
			if hostile {
				size = 4 << 20
			}
			return do(s, who, "POST", "/mcp", strings.NewReader(strings.Repeat("x", size)))
		},
		"large bodies": func(s *Server, who string, _ bool) int {
			return do(s, who, "POST", "/mcp", strings.NewReader(strings.Repeat("x", 256<<10)))
		},
		"streams": func(s *Server, who string, _ bool) int { return do(s, who, "GET", "/mcp", nil) },
	} {
		for _, principals := range []int{2, 20} {
			t.Run(fmt.Sprintf("%s/%d", name, principals), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newServer(t, func(o *Options) {
						o.Shares = smallShares()
						o.RequestsPerSecond = 1e6
						o.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
							select {
							case <-time.After(serviceTime):
							case <-r.Context().Done(): // of a stream that was evicted
							}
						})
					})
					measure := func(attackers int) time.Duration {
						end := make(chan struct{})
						var attack, others sync.WaitGroup
						for range attackers {
							attack.Go(func() {
								for {
									select {
									case <-end:
										return
									default:
										if request(s, "hostile", true) != 200 {
											time.Sleep(time.Millisecond)
										}
									}
								}
							})
						}
						synctest.Wait()
						var mu sync.Mutex
						var took []time.Duration
						for i := range principals - 1 {
							others.Go(func() {
								time.Sleep(time.Duration(i) * time.Millisecond)
								for range 20 {
									began := time.Now()
									if status := request(s, fmt.Sprint("other", i), false); status != 200 {
										t.Errorf("other %d: %d", i, status)
									}
									mu.Lock()
									took = append(took, time.Since(began))
									mu.Unlock()
									time.Sleep(serviceTime / 7)
								}
							})
						}
						others.Wait()
						close(end)
						attack.Wait()
						return p99(took)
					}
					idle, attacked := measure(0), measure(100)
					t.Logf("p99 %v idle, %v attacked", idle, attacked)
					if attacked > hostile*idle {
						t.Errorf("the others' p99 is %v, and %v while one is hostile", idle, attacked)
					}
					nothingHeld(t, s.shares)
				})
			})
		}
	}
}

// TestManyCallers has all callers of one principal at once, as a benchmark does:
// they wait, and none is refused.
func TestManyCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, func(o *Options) {
			o.RequestsPerSecond = 1e6
			o.MCP = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { time.Sleep(serviceTime) })
		})
		var wg sync.WaitGroup
		for range maxRequests {
			wg.Go(func() {
				if res := request(s, "POST", "/mcp", "{}", "Authorization", good); res.StatusCode != 200 {
					t.Errorf("status %d", res.StatusCode)
				}
			})
		}
		wg.Wait()
	})
}

// TestIdleConnections has one address open connections that send nothing, and
// others that never end their headers.
func TestIdleConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares := smallShares()
		l, stop := serveBubble(t, newServer(t, func(o *Options) { o.Shares = shares }))
		var conns []net.Conn
		for i := range 2 * 512 {
			conn := l.dial(t, "192.0.2.1")
			conns = append(conns, conn)
			if i%2 == 0 {
				// One that the server has closed cannot be written to.
				_, _ = io.WriteString(conn, "POST /mcp HTTP/1.1\r\nX-Slow:")
			}
		}
		synctest.Wait()
		if st := shares.newcomers.Stats(); st.Used > 512 || st.Evicted < 512 {
			t.Errorf("the connections: %+v", st)
		}
		conn := l.dial(t, "192.0.2.2")
		for range 3 {
			began := time.Now()
			if status, err := ask(conn, "b", "x"); status != 200 || err != nil || time.Since(began) != 0 {
				t.Errorf("b: %d, %v, after %v", status, err, time.Since(began))
			}
		}
		// b's connection is its principal's by now, however many more come.
		if n := shares.connections.Held("good-b"); n != 1 {
			t.Errorf("b has %d connections", n)
		}
		for range 512 {
			conns = append(conns, l.dial(t, "192.0.2.1"))
		}
		if status, err := ask(conn, "b", "x"); status != 200 || err != nil {
			t.Errorf("b after more: %d, %v", status, err)
		}
		for _, c := range append(conns, conn) {
			c.Close()
		}
		stop()
		synctest.Wait()
		nothingHeld(t, shares)
	})
}

// TestStreamsEvicted has a principal open all streams there are: one of another
// ends the oldest, and a quiet one makes room for its own.
func TestStreamsEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares := smallShares()
		s := newServer(t, func(o *Options) {
			o.Shares = shares
			o.MCP = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				for {
					fmt.Fprintln(w, "here")
					select {
					case <-time.After(10 * time.Second):
					case <-r.Context().Done():
						return
					}
					if r.Header.Get("X-Quiet") != "" {
						<-r.Context().Done()
						return
					}
				}
			})
		})
		ended := make(chan string, 100)
		open := func(who, name string, headers ...string) {
			go func() {
				res := request(s, "GET", "/mcp", "", append([]string{"Authorization", "Bearer good-" + who}, headers...)...)
				ended <- fmt.Sprintf("%s %d", name, res.StatusCode)
			}()
			synctest.Wait()
		}
		for i := range 64 {
			quiet := []string{}
			if i == 7 {
				quiet = []string{"X-Quiet", "1"}
			}
			open("a", fmt.Sprint("a", i), quiet...)
			time.Sleep(time.Second)
		}
		time.Sleep(quietStream)
		open("a", "one more")
		if got := <-ended; got != "a7 200" {
			t.Errorf("the stream that ends for one of the same principal is %q, want the quiet one", got)
		}
		open("b", "b")
		if got := <-ended; !strings.HasPrefix(got, "a") {
			t.Errorf("the stream that ends for another principal is %q", got)
		}
		if n := shares.streams.Held("good-b"); n != 1 {
			t.Errorf("b has %d streams", n)
		}
		s.End(func(auth.Identity) bool { return true })
		for range 64 {
			<-ended
		}
		synctest.Wait()
		if st := shares.streams.Stats(); st.Used != 0 {
			t.Errorf("streams that ended are counted: %+v", st)
		}
	})
}

// TestSlowLargeBody has the start of a large body come in time, and its rest at a
// rate that is too low.
func TestSlowLargeBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shares := smallShares()
		l, stop := serveBubble(t, newServer(t, func(o *Options) { o.Shares = shares }))
		conn := l.dial(t, "192.0.2.1")
		const size = 8 << 20
		began := time.Now()
		var sender sync.WaitGroup
		sender.Go(func() {
			_, err := io.WriteString(conn, head("POST", "/mcp", "a", size)+strings.Repeat("x", 2*smallBody))
			for err == nil {
				time.Sleep(time.Second)
				_, err = conn.Write([]byte("x"))
			}
		})
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		if took, most := time.Since(began), ioTimeout+size/largeRate*time.Second; res.StatusCode != http.StatusRequestTimeout || took > most {
			t.Errorf("status %d after %v, want 408 within %v", res.StatusCode, took, most)
		}
		if st := shares.bodies.Stats(); st.Used != 0 {
			t.Errorf("the body is counted: %+v", st)
		}
		conn.Close()
		sender.Wait()
		stop()
	})
}
