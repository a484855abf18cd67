package network

import (
	"context"
	"fmt"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on unencrypted HTTP.
const (
	maxRequestHeader = 256 << 10
	httpHeaderTime   = 30 * time.Second
)

// serveHTTP forwards the client's requests to the server. It checks for each that
// its host is one of the names that the connection was allowed for, if there are
// any, and has no header rules. It sends the first request over the open
// connection up.
func (f *flow) serveHTTP(guest net.Conn, up *upstream) {
	proxy := f.proxy("http", f.transport(up))
	f.serveRequests(guest, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for _, name := range []string{f.hostOf(r.Host), f.hostOf(r.URL.Host)} {
			if slices.Contains(f.clearNames, name) {
				f.refuseClear(w, name)
				return
			}
		}
		if len(f.names) == 0 || f.isFor(w, r, f.names) {
			proxy.ServeHTTP(w, r)
		}
	}))
}

// proxy returns a handler that forwards requests to the destination of f.
func (f *flow) proxy(scheme string, transport http.RoundTripper) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			// The server gets the path and the query, and no other part of the target.
			u := r.Out.URL
			r.Out.URL = &url.URL{
				Scheme: scheme, Host: f.dst.String(), // the address, not the name
				Path: u.Path, RawPath: u.RawPath, RawQuery: u.RawQuery, ForceQuery: u.ForceQuery,
			}
			r.Out.Host = r.In.Host
			for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
				if v, ok := r.In.Header[h]; ok {
					r.Out.Header[h] = v
				}
			}
		},
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      stdlog.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			w.WriteHeader(http.StatusBadGateway)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dropUpgrade(r.Header)
		proxy.ServeHTTP(w, r)
	})
}

// dropUpgrade removes the headers that ask for another protocol, except for a
// WebSocket. A server may ignore them anyway. After an upgrade to HTTP/2 the
// gateway could not check the hosts of further requests.
func dropUpgrade(header http.Header) {
	if v := header["Upgrade"]; len(v) == 1 && strings.EqualFold(v[0], "websocket") {
		return
	}
	header.Del("Upgrade")
	header.Del("HTTP2-Settings")
}

// isFor reports whether a request is for one of these names. If it is not, isFor
// answers it and ends f.
func (f *flow) isFor(w http.ResponseWriter, r *http.Request, names []string) bool {
	name := f.hostOf(r.Host)
	if !strings.EqualFold(r.Method, http.MethodConnect) && plainTarget(r.URL) &&
		slices.Contains(names, name) && (r.URL.Host == "" || f.hostOf(r.URL.Host) == name) {
		f.named(name)
		return true
	}
	if name != "" {
		f.named(printable(name))
	}
	w.Header().Set("Connection", "close")
	http.Error(w, fmt.Sprintf("glovebox: this connection is to %s, not to %q", names[len(names)-1], name), http.StatusForbidden)
	_ = http.NewResponseController(w).Flush()
	f.stop(sandbox.BlockedHTTPHost)
	return false
}

// plainTarget reports whether a request's target is a path, or an HTTP URL with a
// host. An opaque target would be sent unchanged, and a server prefers the host
// in it to the Host header.
func plainTarget(u *url.URL) bool {
	return u.Opaque == "" && u.User == nil && (u.Scheme == "" || u.Scheme == "http" || u.Scheme == "https")
}

// hostOf returns the name in a Host header, in lower case, without the port of f
// and a trailing dot. If the header has another port, or text in place of a port,
// the result is not a name. Some servers choose a host by the whole header.
func (f *flow) hostOf(host string) string {
	host = strings.TrimSuffix(host, fmt.Sprintf(":%d", f.dst.Port()))
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// transport sends requests over up. When up has ended, it opens new connections
// to the same destination.
func (f *flow) transport(up *upstream) *http.Transport {
	first := make(chan *upstream, 1)
	first <- up
	return &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-first:
				return c, nil
			default:
				return f.connect("tcp")
			}
		},
		DisableCompression:     true,
		MaxConnsPerHost:        1,
		MaxResponseHeaderBytes: maxRequestHeader,
	}
}

// serveRequests serves the requests of one connection until it ends.
func (f *flow) serveRequests(conn net.Conn, h http.Handler) {
	l := &oneConn{conn: conn, done: f.ctx.Done()}
	var hijacked atomic.Bool
	s := http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h.ServeHTTP(w, r)
			if hijacked.Load() {
				f.cancel() // the new protocol's connection has ended
			}
		}),
		ReadHeaderTimeout: httpHeaderTime,
		MaxHeaderBytes:    maxRequestHeader,
		ErrorLog:          stdlog.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, state http.ConnState) {
			switch state {
			case http.StateHijacked:
				hijacked.Store(true)
			case http.StateClosed:
				f.cancel()
			}
		},
	}
	_ = s.Serve(l)
	_ = s.Close()
}

// oneConn is a listener that accepts one connection.
type oneConn struct {
	once sync.Once
	conn net.Conn
	done <-chan struct{}
}

func (l *oneConn) Accept() (net.Conn, error) {
	var c net.Conn
	l.once.Do(func() { c = l.conn })
	if c != nil {
		return c, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *oneConn) Close() error   { return nil }
func (l *oneConn) Addr() net.Addr { return l.conn.LocalAddr() }
