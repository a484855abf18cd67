package signin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of the fetched documents.
const (
	documentTimeout = 5 * time.Second
	maxDocument     = 64 << 10
	documentTTL     = time.Hour
	maxDocuments    = 200
	// Fetches for all callers together, of any client ID that a caller invents.
	fetchesPerSecond, fetchBurst = 1, 20
)

// documents fetches client ID metadata documents, and keeps them for a while.
type documents struct {
	web   *http.Client
	now   func() time.Time
	limit *rate.Limiter

	mu    sync.Mutex
	known map[string]document // client ID -> document
}

type document struct {
	client sandbox.OAuthClient
	until  time.Time
}

// newDocuments returns documents that connects only to addresses that public
// allows. Otherwise a caller could make the server send requests into the networks
// of its machine.
func newDocuments(public func(netip.Addr) bool, now func() time.Time) *documents {
	dialer := &net.Dialer{
		Timeout: documentTimeout,
		// Control sees the address after the name's resolution.
		Control: func(_, address string, _ syscall.RawConn) error {
			a, err := netip.ParseAddrPort(address)
			if err != nil || a.Port() != 443 || !public(a.Addr()) {
				return errors.New("the address is not public")
			}
			return nil
		},
	}
	return &documents{
		now:   now,
		limit: rate.NewLimiter(fetchesPerSecond, fetchBurst),
		known: map[string]document{},
		web: &http.Client{
			Timeout: documentTimeout,
			Transport: &http.Transport{ // a proxy would connect elsewhere
				DialContext: dialer.DialContext, ForceAttemptHTTP2: true, DisableKeepAlives: true, MaxResponseHeaderBytes: maxDocument,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
}

// client returns the client that is identified by the URL of its document.
func (d *documents) client(ctx context.Context, id string) (sandbox.OAuthClient, error) {
	u, err := url.Parse(id)
	if err != nil || len(id) > maxURI || u.Host == "" || u.Port() != "" || u.User != nil || u.Fragment != "" || u.Path == "" || u.Path == "/" {
		return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.Invalid, "client_id: not the URL of a metadata document")
	}
	d.mu.Lock()
	known, ok := d.known[id]
	d.mu.Unlock()
	if ok && d.now().Before(known.until) {
		return known.client, nil
	}
	if !d.limit.Allow() {
		return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.Unavailable, "client_id: too many documents were fetched; try again in a few seconds")
	}
	c, err := d.fetch(ctx, id)
	if err != nil {
		return c, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxDocuments {
		clear(d.known)
	}
	d.known[id] = document{client: c, until: d.now().Add(documentTTL)}
	return c, nil
}

func (d *documents) fetch(ctx context.Context, id string) (c sandbox.OAuthClient, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: not the URL of a metadata document")
	}
	req.Header.Set("Accept", "application/json")
	res, err := d.web.Do(req)
	if err != nil {
		return c, sandbox.Errorf(sandbox.Unavailable, "client_id: the client's metadata document cannot be fetched: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	switch {
	case err != nil:
		return c, sandbox.Errorf(sandbox.Unavailable, "client_id: the client's metadata document cannot be read: %w", err)
	case res.StatusCode != http.StatusOK:
		return c, sandbox.Errorf(sandbox.Unavailable, "client_id: the client's metadata document has the status %d", res.StatusCode)
	case len(body) > maxDocument:
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: the client's metadata document is larger than %d bytes", maxDocument)
	}
	var doc registration
	if err := json.Unmarshal(body, &doc); err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: the client's metadata document is not JSON")
	}
	if doc.ClientID != id {
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: the client's metadata document is for another client")
	}
	if doc.AuthMethod != "" && doc.AuthMethod != "none" {
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: the client's metadata document asks for token_endpoint_auth_method %q, and only none is supported", doc.AuthMethod)
	}
	if c, err = doc.client(); err != nil {
		return c, err
	}
	c.ID = id
	return c, nil
}
