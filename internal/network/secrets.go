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

// terminates reports whether the gateway terminates the TLS of a client with this
// hello. The hello must name a host of secrets, and offer HTTP or no protocol.
func (f *flow) terminates(h hello) bool {
	if h.encrypted || !slices.Contains(f.secretNames, h.serverName) {
		return false
	}
	return len(h.alpn) == 0 || slices.ContainsFunc(h.alpn, func(p string) bool { return slices.Contains(httpProtocols, p) })
}

// httpProtocols are the ALPN names of the protocols that carry secrets.
var httpProtocols = []string{"h2", "http/1.1"}

// errCertificate means that a server's certificate is not valid for its host.
var errCertificate = errors.New("glovebox: the server's certificate")

// serveSecrets terminates the TLS of a client that sent h, and forwards its
// requests with the secrets in their headers. First the server must prove with
// its certificate that it is the host of the secrets.
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
	// Offer the client only the protocol that the server chose.
	config := &tls.Config{
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return f.in.certificate(name) },
		MinVersion:     tls.VersionTLS12,
		// A resumed session would outlive a change of the policy.
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
		f.cancel() // many clients have their own list of roots and do not trust the gateway
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
	redact := newRedactor(f.in.secrets)
	fit, rules := f.in.secretsFor(name, f.dst.Port())
	ruled := newRuled(transport, rules, fit)
	proxy := f.proxy("https", &redactedTransport{ruled, redact})
	secrets := newReplacer(fit)
	f.serveRequests(client, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !f.isFor(w, r, []string{name}) {
			return
		}
		if s, header, ok := misplaced(fit, r.Header); ok {
			f.refuseHeader(w, name, s, header)
			return
		}
		size := secrets.size(r.Header) + ruled.size()
		if size > 2*maxRequestHeader {
			http.Error(w, "glovebox: the headers with the secrets are too long", http.StatusRequestHeaderFieldsTooLarge)
			return
		}
		defer f.g.headers.Add(-size)
		if f.g.headers.Add(size) > maxHeaders {
			http.Error(w, "glovebox: the sandbox makes too many requests at one time", http.StatusServiceUnavailable)
			return
		}
		if (secrets.replace(r.Header) || len(rules) > 0) && strings.EqualFold(r.Method, http.MethodTrace) {
			// The answer to TRACE contains the request. Some servers ignore a
			// method's case.
			http.Error(w, "glovebox: TRACE is not allowed, because it would show the secret", http.StatusMethodNotAllowed)
			return
		}
		proxy.ServeHTTP(&redactedWriter{w, redact}, r)
		redact.header(w.Header()) // its trailers
	}))
}

// misplaced returns a secret whose placeholder is in a header that the secret
// does not name, and the name of that header.
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

// refuseHeader answers a request that has a secret in a header that the secret
// does not name. It explains the reason, because otherwise the host would only
// report an unknown key.
func (f *flow) refuseHeader(w http.ResponseWriter, host string, s *sandbox.Secret, header string) {
	f.g.log.block(sandbox.Connection{
		Protocol: sandbox.ProtocolTCP, Host: host, Address: f.dst.Addr(), Port: f.dst.Port(), Blocked: sandbox.BlockedHeader,
	})
	http.Error(w, fmt.Sprintf("glovebox: the secret %s may not be in the header %s. Send it in another header, such as Authorization, "+
		"or ask the operator to allow this header with --secret-header %[2]s", s.Name, header), http.StatusForbidden)
}

// secure opens a TLS connection over up to the host of that name, and verifies
// its certificate. If it fails, it closes up.
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
		return nil, fmt.Errorf("%w is not valid for %s: %w", errCertificate, name, bad.Err)
	}
	return nil, fmt.Errorf("glovebox: TLS with %s failed: %w", name, err)
}

// stopAfter records why f is blocked without ending f, so that the client still
// receives an answer.
func (f *flow) stopAfter(why sandbox.BlockReason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.rec.Blocked == "" {
		f.rec.Blocked = why
	}
}

// maxHeaders bounds the headers of a sandbox's requests under way, in bytes, with
// the secrets in them. A secret may be longer than its placeholder.
const maxHeaders = 64 << 20

// A replacer replaces placeholders by their secrets.
type replacer struct {
	pairs   []string // each placeholder is followed by its secret
	strings *strings.Replacer
}

func newReplacer(secrets []sandbox.Secret) *replacer {
	var pairs []string
	for _, s := range secrets {
		pairs = append(pairs, s.Placeholder(), s.Value.Reveal())
	}
	return &replacer{pairs, strings.NewReplacer(pairs...)}
}

// size returns an upper bound on the size of header after replace, in bytes.
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

// added returns the total length of the secrets whose placeholders are in v.
func (p *replacer) added(v string) int {
	n := 0
	for i := 0; i < len(p.pairs); i += 2 {
		n += strings.Count(v, p.pairs[i]) * len(p.pairs[i+1])
	}
	return n
}

// replace puts the secrets into the values of header, and reports whether it
// changed any. It also decodes credentials of the Basic scheme.
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

// basicCredentials returns the decoded credentials if the header is Authorization
// with the Basic scheme.
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
