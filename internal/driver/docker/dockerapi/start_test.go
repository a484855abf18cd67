package dockerapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fakePodman answers calls that start containers and attach to them.
func fakePodman(t *testing.T, start, attach http.HandlerFunc) *Engine {
	t.Helper()
	mux := http.NewServeMux()
	// Behind a proxy that has it below a path.
	mux.HandleFunc("POST /podman/v1.41/containers/box/start", start)
	mux.HandleFunc("POST /podman/v1.41/containers/box/attach", attach)
	var s *httptest.Server
	s = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if name := "http://" + r.Host; name != s.URL || r.UserAgent() != userAgent {
			t.Errorf("%s is asked as %q by %q", s.URL, name, r.UserAgent())
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(client.WithHost("tcp://"+s.Listener.Addr().String()+"/podman"), client.WithAPIVersion("1.41"), client.WithUserAgent(userAgent))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &Engine{Client: c, Name: Podman}
}

func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

// echoed gives its caller streams that say what they are told.
func echoed(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "tcp" || r.URL.RawQuery != "stderr=1&stdin=1&stdout=1&stream=1" {
		http.Error(w, fmt.Sprintf("asked with %q and %v", r.URL.RawQuery, r.Header), http.StatusBadRequest)
		return
	}
	conn, buf, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprint(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	said := make([]byte, 5)
	if _, err := io.ReadFull(buf, said); err == nil {
		conn.Write(append([]byte{1, 0, 0, 0, 0, 0, 0, byte(len(said))}, said...))
	}
}

// TestStartAttached has a container started where attaching to it makes its
// process.
func TestStartAttached(t *testing.T) {
	// Neither is answered before the other is asked for: no moment is between.
	both := make(chan struct{}, 2)
	meet := func(then http.HandlerFunc) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			both <- struct{}{}
			for deadline := time.Now().Add(5 * time.Second); len(both) < 2; time.Sleep(time.Millisecond) {
				if time.Now().After(deadline) {
					w.WriteHeader(http.StatusTeapot)
					return
				}
			}
			then(w, r)
		}
	}
	attached := 0
	tests := []struct {
		name          string
		start, attach http.HandlerFunc
		ok            bool
		is            func(error) bool
		text          string
	}{
		{name: "at once", start: meet(answer(http.StatusNoContent, "")), attach: meet(echoed), ok: true},
		{name: "start first", start: answer(http.StatusNoContent, ""), attach: func(w http.ResponseWriter, r *http.Request) {
			if attached++; attached == 1 {
				answer(http.StatusConflict, `{"message":"error preparing container"}`)(w, r)
				return
			}
			echoed(w, r)
		}, ok: true},
		{name: "no container", start: answer(http.StatusNotFound, `{"message":"no such container"}`), attach: echoed, is: errdefs.IsNotFound, text: "no such container"},
		{name: "no streams", start: answer(http.StatusNoContent, ""), attach: answer(http.StatusForbidden, `{"message":"by the rules"}`),
			is: func(err error) bool { return errors.Is(err, ErrAttach) && errdefs.IsPermissionDenied(err) }, text: "by the rules"},
		{name: "a proxy between", start: answer(http.StatusNoContent, ""), attach: answer(http.StatusBadRequest, "<html>"),
			is: func(err error) bool { return errors.Is(err, ErrAttach) }, text: "unable to upgrade to tcp: 400 Bad Request"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := fakePodman(t, test.start, test.attach)
			s, err := e.StartAttached(t.Context(), "box")
			if !test.ok {
				if err == nil || !test.is(err) || !strings.Contains(err.Error(), test.text) {
					t.Fatalf("StartAttached: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			if _, err := io.WriteString(s, "hello"); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 5)
			if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, []byte("hello")) {
				t.Errorf("the streams say %q, %v", got, err)
			}
		})
	}
}

// TestStartAttachedEnds has the engine never answer.
func TestStartAttachedEnds(t *testing.T) {
	hangs := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	e := fakePodman(t, hangs, hangs)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := e.StartAttached(ctx, "box"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("an engine that does not answer: %v", err)
	}
	if _, err := e.StartAttached(t.Context(), "other"); err == nil {
		t.Error("a container that the engine does not know was started")
	} else if sandbox.KindOf(e.Explain(err)) != sandbox.NotFound {
		t.Errorf("%v of kind %q", err, sandbox.KindOf(e.Explain(err)))
	}
}
