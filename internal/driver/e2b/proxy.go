package e2b

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The guest's protocol extends the protocol of E2B's agent. The differences:
//
//   - Keep: output is lost while no stream is open, and so is the end event.
//   - File names that are not UTF-8 are not supported.
//   - The end event has no resource usage, and no cause such as memory, disk or
//     processes.
//   - The proxy implements appending to a file by rewriting the whole file.
//   - E2B's code interpreter implements contexts: see contexts.go.
//   - Limits, ports, previews of pictures, edits and searches are refused.

// A proxyServer serves the streams to all boxes of a driver.
type proxyServer struct {
	server *http.Server
	conns  chan net.Conn
	done   chan struct{}
	once   sync.Once
	served sync.WaitGroup
}

type boxKey struct{}

func newProxyServer() *proxyServer {
	p := &proxyServer{conns: make(chan net.Conn), done: make(chan struct{})}
	p.server = &http.Server{
		Handler:   http.HandlerFunc(proxy),
		Protocols: new(http.Protocols),
		ErrorLog:  log.New(io.Discard, "", 0),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, boxKey{}, c.(*boxConn).b)
		},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 2000, MaxReadFrameSize: 256 << 10, MaxReceiveBufferPerStream: 1 << 20, MaxReceiveBufferPerConnection: 4 << 20},
	}
	p.server.Protocols.SetHTTP1(true)
	p.server.Protocols.SetUnencryptedHTTP2(true)
	p.served.Go(func() { p.server.Serve(p) })
	return p
}

// serve serves a stream. It returns false if the server is closed.
func (p *proxyServer) serve(c net.Conn) bool {
	select {
	case p.conns <- c:
		return true
	case <-p.done:
		return false
	}
}

func (p *proxyServer) close() {
	p.Close()
	p.server.Close()
	p.served.Wait()
}

// Accept implements [net.Listener].
func (p *proxyServer) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (p *proxyServer) Close() error {
	p.once.Do(func() { close(p.done) })
	return nil
}

// Addr implements [net.Listener].
func (p *proxyServer) Addr() net.Addr { return &net.UnixAddr{Name: "pipe", Net: "pipe"} }

// proxy sends a request to E2B's agent.
func proxy(w http.ResponseWriter, r *http.Request) {
	b := r.Context().Value(boxKey{}).(*Box)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(b.ctx, cancel)()
	r = r.WithContext(ctx)
	if strings.HasPrefix(r.URL.Path, guestapi.PathPorts) {
		http.Error(w, `{"code":"unimplemented","message":"driver e2b cannot connect to a port of a sandbox"}`, http.StatusNotImplemented)
		return
	}
	for _, prefix := range []string{guestapi.PathExecute, guestapi.PathContexts, guestapi.PathExecutions} {
		if r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/") {
			b.contexts.serve(w, r)
			return
		}
	}
	if err := b.adapt(r); err != nil {
		http.Error(w, `{"code":"invalid_argument","message":"the request must be one message"}`, http.StatusBadRequest)
		return
	}
	switch r.URL.Path {
	case guestapi.PathPreviews, guestapi.PathSixels:
		http.Error(w, `{"code":"unimplemented","message":"E2B's agent cannot make previews of pictures"}`, http.StatusNotImplemented)
		return
	case guestapi.PathEdits, guestapi.PathSearches, guestapi.PathGlobs:
		http.Error(w, `{"code":"unimplemented","message":"E2B's agent cannot edit or search files: run a program, such as sed, grep or find"}`, http.StatusNotImplemented)
		return
	case guestapi.PathChanges, guestapi.PathDiff, guestapi.PathBase:
		http.Error(w, `{"code":"unimplemented","message":"E2B's agent does not know the changes of files: run git diff in the sandbox"}`, http.StatusNotImplemented)
		return
	case guestapi.PathLimits:
		http.Error(w, `{"code":"unimplemented","message":"driver e2b cannot change limits"}`, http.StatusNotImplemented)
		return
	case guestapi.PathFiles:
		if r.URL.Query().Get("append") == "true" {
			if err := b.completeFile(r); err != nil {
				http.Error(w, fmt.Sprintf(`{"code":502,"message":%q}`, err.Error()), http.StatusBadGateway)
				return
			}
		}
	default:
		if err := keepBody(r); err != nil {
			http.Error(w, `{"code":"invalid_argument","message":"the request is too long"}`, http.StatusBadRequest)
			return
		}
	}
	(&httputil.ReverseProxy{
		Rewrite:       func(*httputil.ProxyRequest) {},
		Transport:     roundTripper(func(r *http.Request) (*http.Response, error) { return b.roundTrip(r, agentPort) }),
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf(`{"code":"unavailable","message":%q}`, "E2B's agent cannot be reached: "+err.Error()), http.StatusBadGateway)
		},
	}).ServeHTTP(w, r)
}

// adapt sets a program's working directory if the request has none. E2B's
// default is the user's home directory.
func (b *Box) adapt(r *http.Request) error {
	if r.URL.Path != guestapi.ProcStart || b.d.opts.Bare {
		return nil
	}
	flags, msg, err := guestapi.ReadEnvelope(r.Body, nil, guestapi.MaxUnaryRequest)
	if err != nil {
		return err
	}
	var in guestapi.StartRequest
	if err := json.Unmarshal(msg, &in); err != nil {
		return err
	}
	in.Process.Cwd = cmp.Or(in.Process.Cwd, sandbox.WorkDir)
	if msg, err = json.Marshal(&in); err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(guestapi.AppendEnvelope(nil, flags, msg)))
	return nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// keepBody reads the body of a request, which is short, so that it can be sent
// again.
func keepBody(r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, guestapi.MaxUnaryRequest+1024))
	if err == nil && len(body) > guestapi.MaxUnaryRequest+512 {
		err = errors.New("too long")
	}
	if err != nil {
		return err
	}
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	r.Body, _ = r.GetBody()
	r.ContentLength = int64(len(body))
	return nil
}

// maxAside bounds the temporary copy of a file, in bytes, if the box has no disk
// limit.
const maxAside = 16 << 30

// completeFile turns an append request into a write of the whole file. It copies
// the old content to a temporary file first, because E2B's agent truncates the
// file when the write begins.
func (b *Box) completeFile(r *http.Request) error {
	q := r.URL.Query()
	q.Del("append")
	r.URL.RawQuery = q.Encode()
	get, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://agent"+guestapi.PathFiles+"?"+r.URL.RawQuery, nil)
	if err != nil {
		return err
	}
	get.Header.Set("Authorization", r.Header.Get("Authorization"))
	resp, err := b.roundTrip(get, agentPort)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil // no file, or the write will report the problem
	}
	aside, err := os.CreateTemp(b.d.opts.StateDir, "append-*")
	if err != nil {
		return err
	}
	context.AfterFunc(r.Context(), func() {
		aside.Close()
		_ = os.Remove(aside.Name())
	})
	most := cmp.Or(b.spec.DiskBytes, maxAside)
	n, err := io.Copy(aside, io.LimitReader(resp.Body, most+1))
	if err != nil {
		return err
	}
	if n > most {
		return fmt.Errorf("the file has more than %s, the limit of the sandbox", sandbox.FormatBytes(most))
	}
	if _, err := aside.Seek(0, io.SeekStart); err != nil {
		return err
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(aside, r.Body), r.Body}
	r.ContentLength = -1
	return nil
}
