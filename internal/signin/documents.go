package signin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync"
	"syscall"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of the fetched documents.
const (
	documentTimeout = 5 * time.Second
	maxDocument     = 64 << 10
	documentTTL     = time.Hour
	// keepDocument is how long an old document counts while its host does not
	// answer.
	keepDocument = 24 * time.Hour
	maxDocuments = 200
)

// documents fetches client ID metadata documents, and keeps them for a while.
type documents struct {
	web   *http.Client
	now   func() time.Time
	log   *slog.Logger
	limit *limits // fetches, by the address of the stranger who causes them

	mu    sync.Mutex
	known map[string]document // client ID -> document
}

type document struct {
	client  sandbox.OAuthClient
	fetched time.Time
}

// newDocuments returns documents that connects only to addresses that public
// allows. Otherwise a caller could make the server send requests into the networks
// of its machine.
func newDocuments(public func(netip.Addr) bool, now func() time.Time, log *slog.Logger) *documents {
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
		log:   log,
		limit: newLimits(documentEvery, documentBurst),
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

// client returns the client that is identified by the URL of its document, for a
// stranger at an address.
func (d *documents) client(ctx context.Context, stranger, id string) (sandbox.OAuthClient, error) {
	u, err := url.Parse(id)
	if err != nil || len(id) > maxURI || u.Host == "" || u.Port() != "" || u.User != nil || u.Fragment != "" || u.Path == "" || u.Path == "/" {
		return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.Invalid, "client_id: not the URL of a metadata document")
	}
	d.mu.Lock()
	known, ok := d.known[id]
	d.mu.Unlock()
	age := d.now().Sub(known.fetched)
	if ok && age < documentTTL {
		return known.client, nil
	}
	if !d.limit.allow(stranger) {
		if ok && age < keepDocument {
			return known.client, nil
		}
		return sandbox.OAuthClient{}, sandbox.Errorf(sandbox.Unavailable, "client_id: too many documents were fetched; try again in a few seconds")
	}
	c, err := d.fetch(ctx, id)
	if errors.Is(err, sandbox.Unavailable) && ok && age < keepDocument {
		return known.client, nil
	}
	if err != nil {
		return c, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.known) >= maxDocuments {
		oldest := id
		for other, doc := range d.known {
			if was, ok := d.known[oldest]; !ok || doc.fetched.Before(was.fetched) {
				oldest = other
			}
		}
		delete(d.known, oldest)
	}
	d.known[id] = document{client: c, fetched: d.now()}
	return c, nil
}

// unreachable returns the error for a document that cannot be fetched. The stranger
// does not learn the cause, which describes the networks of this machine.
func (d *documents) unreachable(id string, cause error) error {
	d.log.Info("fetch the metadata document of a client", "client", id, "error", cause)
	return sandbox.Errorf(sandbox.Unavailable, "client_id: the client's metadata document cannot be fetched")
}

func (d *documents) fetch(ctx context.Context, id string) (c sandbox.OAuthClient, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, id, nil)
	if err != nil {
		return c, sandbox.Errorf(sandbox.Invalid, "client_id: not the URL of a metadata document")
	}
	req.Header.Set("Accept", "application/json")
	res, err := d.web.Do(req)
	if err != nil {
		return c, d.unreachable(id, err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxDocument+1))
	switch {
	case err != nil:
		return c, d.unreachable(id, err)
	case res.StatusCode != http.StatusOK:
		return c, d.unreachable(id, fmt.Errorf("status %d", res.StatusCode))
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
