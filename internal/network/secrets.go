package network

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// secretsFor returns the secrets that may go to the host of that name.
func (g *Gateway) secretsFor(name string, port uint16) []sandbox.Secret {
	var list []sandbox.Secret
	for _, s := range g.secrets {
		if s.IsFor(name, port) {
			list = append(list, s)
		}
	}
	return list
}

// mayHaveSecrets returns those of an address's names that secrets are for on
// that port: a connection to it must be looked at.
func (g *Gateway) mayHaveSecrets(names []string, port uint16) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return len(g.secretsFor(n, port)) == 0 })
}

// Authority returns the certificate, in PEM, that the sandbox must trust for its
// secrets to work; nil if it has none.
func (g *Gateway) Authority() []byte {
	if g.authority == nil {
		return nil
	}
	return g.authority.pem
}

// terminates reports whether a client that sends this hello is to be answered
// in the place of its server: one with which it will speak HTTP.
func (f *flow) terminates(h hello) bool {
	if h.encrypted || !slices.Contains(f.secretNames, h.serverName) {
		return false
	}
	return len(h.alpn) == 0 || slices.ContainsFunc(h.alpn, func(p string) bool { return slices.Contains(httpProtocols, p) })
}

// httpProtocols are those that secrets are put into, as TLS calls them.
var httpProtocols = []string{"h2", "http/1.1"}

// errCertificate says that a server does not prove to be the host it should be.
var errCertificate = errors.New("glovebox: the server's certificate")

// serveSecrets answers a client in the place of the server that it greeted with
// h, and passes its requests on with the secrets in their headers. The server
// has to prove first that it is the host that the secrets are for.
func (f *flow) serveSecrets(guest net.Conn, up *upstream, h hello) {
	f.named(h.serverName)
	name := h.serverName
	var offer []string
	for _, p := range httpProtocols {
		if slices.Contains(h.alpn, p) {
			offer = append(offer, p)
		}
	}
	first, failed := f.secure(up, name, offer)
	// What the server speaks is what the client gets.
	config := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.g.authority.certificate(name) },
		MinVersion:     tls.VersionTLS12,
		// Sessions would outlive a change of what is allowed.
		SessionTicketsDisabled: true,
	}
	if failed == nil {
		if p := first.ConnectionState().NegotiatedProtocol; p != "" {
			config.NextProtos = []string{p}
		}
	} else if len(offer) > 0 {
		config.NextProtos = offer[:1]
	}
	client := tls.Server(guest, config)
	ctx, cancel := context.WithTimeout(f.ctx, clearWithin)
	err := client.HandshakeContext(ctx)
	cancel()
	if err != nil {
		f.cancel() // it does not trust us: many a client brings its own list
		return
	}
	if failed != nil {
		if errors.Is(failed, errCertificate) {
			f.stopAfter(sandbox.BlockedCertificate)
		}
		f.serveRequests(client, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Connection", "close")
			http.Error(w, failed.Error(), http.StatusBadGateway)
		}))
		return
	}
	conns := make(chan *tls.Conn, 1)
	conns <- first
	transport := &http.Transport{
		DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			select {
			case c := <-conns:
				return c, nil
			default:
			}
			next, err := f.connect("tcp")
			if err != nil {
				return nil, err
			}
			return f.secure(next, name, offer)
		},
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxConnsPerHost:        1,
		MaxResponseHeaderBytes: maxRequestHeader,
	}
	defer transport.CloseIdleConnections()
	redact := newRedactor(f.g.secrets)
	proxy := f.proxy("https", &redactedTransport{transport, redact})
	fit := f.g.secretsFor(name, f.dst.Port())
	secrets := newReplacer(fit)
	f.serveRequests(client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.isFor(w, r, []string{name}) {
			return
		}
		if s, header, ok := misplaced(fit, r.Header); ok {
			f.refuseHeader(w, name, s, header)
			return
		}
		size := secrets.size(r.Header)
		if size > 2*maxRequestHeader {
			http.Error(w, "glovebox: the headers are too long with the secrets in them", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		defer f.g.headers.Add(-size)
		if f.g.headers.Add(size) > maxHeaders {
			http.Error(w, "glovebox: the sandbox makes too many requests at one time", http.StatusServiceUnavailable)
			return
		}
		if secrets.replace(r.Header) && strings.EqualFold(r.Method, http.MethodTrace) {
			// Its answer is what was asked. Some servers ignore a method's case.
			http.Error(w, "glovebox: TRACE would show the secret", http.StatusMethodNotAllowed)
			return
		}
		proxy.ServeHTTP(&redactedWriter{w, redact}, r)
		redact.header(w.Header()) // its trailers
	}))
}

// misplaced returns a secret whose placeholder is in a header that the secret
// does not name, and that header.
func misplaced(secrets []sandbox.Secret, header http.Header) (s *sandbox.Secret, name string, ok bool) {
	for _, name := range slices.Sorted(maps.Keys(header)) {
		for _, v := range header[name] {
			plain, _ := basicCredentials(name, v)
			for i := range secrets {
				s, p := &secrets[i], secrets[i].Placeholder()
				if !s.TakesHeader(name) && (strings.Contains(v, p) || strings.Contains(plain, p)) {
					return s, name, true
				}
			}
		}
	}
	return nil, "", false
}

// refuseHeader answers a request to a host that has a secret in a header that the
// secret does not name. The program would wonder why the host knows no such key,
// so it is told.
func (f *flow) refuseHeader(w http.ResponseWriter, host string, s *sandbox.Secret, header string) {
	f.g.log.block(sandbox.Connection{
		Protocol: sandbox.ProtocolTCP, Host: host, Address: f.dst.Addr(), Port: f.dst.Port(), Blocked: sandbox.BlockedHeader,
	})
	http.Error(w, fmt.Sprintf("glovebox: the secret %s may not be in the header %s. Send it in another header, like Authorization, "+
		"or ask the operator to name this one among the secret's headers: --secret-header %[2]s", s.Name, header), http.StatusForbidden)
}

// secure greets the server as a client that wants the host of that name.
func (f *flow) secure(up *upstream, name string, offer []string) (*tls.Conn, error) {
	c := tls.Client(up, &tls.Config{ServerName: name, RootCAs: f.g.roots, NextProtos: offer, MinVersion: tls.VersionTLS12})
	ctx, cancel := context.WithTimeout(f.ctx, dialTimeout)
	defer cancel()
	err := c.HandshakeContext(ctx)
	if err == nil {
		return c, nil
	}
	up.Close()
	var bad *tls.CertificateVerificationError
	if errors.As(err, &bad) {
		return nil, fmt.Errorf("%w does not prove that it is %s: %w", errCertificate, name, bad.Err)
	}
	return nil, fmt.Errorf("glovebox: no TLS with %s: %w", name, err)
}

// stopAfter records why f is not what it should be without ending it: its
// client is told.
func (f *flow) stopAfter(why sandbox.BlockReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec.Blocked == "" {
		f.rec.Blocked = why
	}
}

// maxHeaders bounds the headers of a sandbox's requests under way, in bytes and
// with secrets in them: a short placeholder may stand for a long one.
const maxHeaders = 64 << 20

// A replacer puts secrets in the place of their placeholders.
type replacer struct {
	pairs   []string // placeholders, each before its secret
	strings *strings.Replacer
}

func newReplacer(secrets []sandbox.Secret) *replacer {
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s.Placeholder(), s.Value.Reveal())
	}
	return &replacer{pairs, strings.NewReplacer(pairs...)}
}

// size returns how many bytes the header will have at most once replaced.
func (p *replacer) size(header http.Header) int64 {
	n := 0
	for key, values := range header {
		for _, v := range values {
			n += len(key) + len(v) + p.added(v)
			if plain, ok := basicCredentials(key, v); ok {
				n += base64.StdEncoding.EncodedLen(p.added(plain))
			}
		}
	}
	return int64(n)
}

// added returns how many bytes the secrets in v will have.
func (p *replacer) added(v string) int {
	n := 0
	for i := 0; i < len(p.pairs); i += 2 {
		n += strings.Count(v, p.pairs[i]) * len(p.pairs[i+1])
	}
	return n
}

// replace puts the secrets into header's values and reports whether there were
// any to put. Credentials of the Basic scheme, which are encoded, are looked
// into.
func (p *replacer) replace(header http.Header) bool {
	replaced := false
	for key, values := range header {
		for i, v := range values {
			with := p.strings.Replace(v)
			if plain, ok := basicCredentials(key, v); ok && with == v {
				if known := p.strings.Replace(plain); known != plain {
					with = v[:len("Basic ")] + base64.StdEncoding.EncodeToString([]byte(known))
				}
			}
			if with != v {
				values[i], replaced = with, true
			}
		}
	}
	return replaced
}

// basicCredentials returns what the value of a header has encoded, if that is
// credentials of the Basic scheme.
func basicCredentials(key, v string) (plain string, ok bool) {
	if key != "Authorization" {
		return "", false
	}
	scheme, text, _ := strings.Cut(v, " ")
	if !strings.EqualFold(scheme, "Basic") {
		return "", false
	}
	data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	return string(data), err == nil
}
