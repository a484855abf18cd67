package templates

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/template"
)

// linkTime is how long an address for an upload is valid.
const linkTime = time.Hour

// files answers with the address to which an SDK sends an archive. The SDK sends no
// API key there, so the address is signed.
func (a *API) files(r *http.Request, p sandbox.Principal) (int, any, error) {
	hash := r.PathValue("hash")
	// The path may have the name of the template, which principals choose. The address
	// has the identifier.
	t, present, err := a.opts.Service.HasFiles(r.Context(), p, r.PathValue("id"), hash)
	if err != nil {
		return 0, nil, err
	}
	ends := strconv.FormatInt(a.opts.Now().Add(linkTime).Unix(), 10)
	u := url.URL{Scheme: a.scheme(r), Host: r.Host, Path: prefix(r) + "/templates/" + t.ID + "/files/" + hash}
	u.RawQuery = url.Values{"expires": {ends}, "signature": {a.opts.Access.Token(signed(p, t.ID, hash, ends))}}.Encode()
	return http.StatusCreated, struct {
		Present bool   `json:"present"`
		URL     string `json:"url"`
	}{present, u.String()}, nil
}

// signed returns the text that the signature of an upload's address is of. No
// sandbox has such an identifier.
func signed(p sandbox.Principal, id, hash, ends string) string {
	return fmt.Sprintf("template upload %q %q %q %s", p, id, hash, ends)
}

// scheme returns the scheme by which the client of a request reaches the server.
func (a *API) scheme(r *http.Request) string {
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" || a.opts.Domain != "" && strings.HasSuffix(r.Host, "."+a.opts.Domain) {
		return "https"
	}
	return "http"
}

// prefix returns the part of a request's path that was removed before it came here.
func prefix(r *http.Request) string {
	path, _, _ := strings.Cut(r.RequestURI, "?")
	before, ok := strings.CutSuffix(path, r.URL.EscapedPath())
	if !ok || !strings.HasPrefix(path, "/") {
		return ""
	}
	return before
}

// IsUpload reports whether a request is an upload to a signed address.
func (a *API) IsUpload(r *http.Request) bool {
	if r.Method != http.MethodPut || !r.URL.Query().Has("signature") {
		return false
	}
	_, _, ok := uploadOf(r)
	return ok
}

// uploadOf returns the template and the hash in the path of an upload.
func uploadOf(r *http.Request) (id, hash string, ok bool) {
	rest, ok := strings.CutPrefix(r.URL.Path, "/templates/")
	if !ok {
		return "", "", false
	}
	id, hash, ok = strings.Cut(rest, "/files/")
	return id, hash, ok && id != "" && hash != "" && !strings.Contains(id+hash, "/")
}

// Uploader returns the principal of an upload, after checking its signature.
func (a *API) Uploader(r *http.Request) (sandbox.Principal, error) {
	id, hash, _ := uploadOf(r)
	q := r.URL.Query()
	p, err := a.opts.Service.Owner(r.Context(), id)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return "", err
	}
	// Without a template there is no principal, and no address is for none.
	ends, invalid := strconv.ParseInt(q.Get("expires"), 10, 64)
	if err != nil || invalid != nil || !a.opts.Access.Check(signed(p, id, hash, q.Get("expires")), q.Get("signature")) {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the address of the upload was not made by this server, or its template was deleted"), "build again")
	}
	if a.opts.Now().Unix() > ends {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "the address of the upload has expired"), "build again")
	}
	return p, nil
}

// upload stores an archive. Only requests to a signed address, or of the owner, come
// here.
func (a *API) upload(r *http.Request, p sandbox.Principal) (int, any, error) {
	if _, _, err := a.opts.Service.Get(r.Context(), p, r.PathValue("id")); err != nil {
		return 0, nil, err
	}
	return http.StatusOK, nil, a.opts.Service.Upload(r.Context(), p, r.PathValue("hash"), r.ContentLength, r.Body)
}

// StatusOf returns the HTTP status for an error of this package, or 0.
func StatusOf(err error) int {
	if errors.Is(err, template.ErrTooLong) {
		return http.StatusRequestEntityTooLarge
	}
	return 0
}
