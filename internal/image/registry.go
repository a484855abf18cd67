package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A source is a repository in a registry from which an image can be fetched.
type source struct {
	repo   name.Repository
	ref    name.Reference
	client *http.Client
	close  func() // closes its connections
}

// sources returns the references from which an image can be fetched, in the order
// in which they are tried.
func (s *Store) sources(ref name.Reference) ([]name.Reference, error) {
	host := ref.Context().RegistryStr()
	if len(s.opts.Registries) > 0 && !s.listed(host) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image: this server does not fetch from %s", shown(host)),
			"ask the operator to add it to images.registries; that list has %s", strings.Join(s.opts.Registries, ", "))
	}
	var list []name.Reference
	for registry, mirrors := range s.opts.Mirrors {
		if !sameRegistry(registry, host) {
			continue
		}
		for _, m := range mirrors {
			full := strings.TrimSuffix(m, "/") + "/" + ref.Context().RepositoryStr()
			sep := ":"
			if _, ok := ref.(name.Digest); ok {
				sep = "@"
			}
			r, err := name.ParseReference(full+sep+ref.Identifier(), name.WeakValidation)
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "images.mirrors: %s: %w", quote(m), err)
			}
			list = append(list, r)
		}
	}
	return append(list, ref), nil
}

// listed reports whether the operator listed a registry.
func (s *Store) listed(host string) bool {
	return slices.ContainsFunc(s.opts.Registries, func(r string) bool { return sameRegistry(r, host) })
}

// sameRegistry reports whether registry, as people write it, is host.
func sameRegistry(registry, host string) bool {
	r, err := name.NewRegistry(registry, name.WeakValidation)
	return err == nil && r.RegistryStr() == host
}

// shown returns the common name of a registry.
func shown(host string) string {
	if host == name.DefaultRegistry {
		return "docker.io"
	}
	return host
}

// connect authenticates to a registry if it asks for credentials. The registry,
// and the hosts to which it redirects, must have public addresses, or the
// operator must list them. With mirror, the registry itself may have any address.
// With anywhere, all may. The caller closes the source.
func (s *Store) connect(ctx context.Context, ref name.Reference, mirror, anywhere bool) (*source, error) {
	repo := ref.Context()
	auth, err := s.opts.Keychain.Resolve(repo)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "credentials for %s: %w", shown(repo.RegistryStr()), err),
			"log in again with docker login or podman login, or repair their configuration")
	}
	base := s.guarded(repo.RegistryStr(), mirror, anywhere)
	rt, err := transport.NewWithContext(ctx, repo.Registry, auth, base, []string{repo.Scope(transport.PullScope)})
	if err != nil {
		base.close()
		return nil, explainRegistry(err, ref)
	}
	return &source{repo: repo, ref: ref, client: &http.Client{Transport: rt, CheckRedirect: base.redirect}, close: base.close}, nil
}

// isLoopback reports whether a host, with or without a port, is this machine. A
// name below localhost is this machine, as clients of registries assume.
func isLoopback(host string) bool {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.Trim(host, "[]")
	return sandbox.IsLoopback(host) || strings.HasSuffix(host, ".localhost")
}

// errRange means that a registry does not support ranges.
var errRange = sandbox.Errorf(sandbox.Unavailable, "the registry does not support requests for parts")

// get requests a manifest or a blob of the repository. The caller closes the
// body.
func (src *source) get(ctx context.Context, kind, id string, header http.Header) (*http.Response, error) {
	u := url.URL{Scheme: src.repo.Scheme(), Host: src.repo.RegistryStr(), Path: fmt.Sprintf("/v2/%s/%s/%s", src.repo.RepositoryStr(), kind, id)}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := src.client.Do(req)
	if err != nil {
		return nil, explainRegistry(err, src.ref)
	}
	if resp.StatusCode == http.StatusRequestedRangeNotSatisfiable {
		resp.Body.Close()
		return nil, errRange
	}
	if err := transport.CheckError(resp, http.StatusOK, http.StatusPartialContent); err != nil {
		resp.Body.Close()
		return nil, explainRegistry(err, src.ref)
	}
	return resp, nil
}

// manifestTypes are the supported types of manifests and indexes.
var manifestTypes = []types.MediaType{
	types.OCIManifestSchema1, types.DockerManifestSchema2, types.OCIImageIndex, types.DockerManifestList,
}

// manifest fetches a manifest or an index by tag or digest, and checks its
// digest.
func (src *source) manifest(ctx context.Context, id string) (data []byte, h v1.Hash, kind types.MediaType, err error) {
	accept := make([]string, 0, len(manifestTypes))
	for _, t := range manifestTypes {
		accept = append(accept, string(t))
	}
	resp, err := src.get(ctx, "manifests", id, http.Header{"Accept": {strings.Join(accept, ", ")}})
	if err != nil {
		return nil, h, "", err
	}
	defer resp.Body.Close()
	data, err = io.ReadAll(io.LimitReader(resp.Body, maxManifest+1))
	if err != nil {
		return nil, h, "", explainRegistry(err, src.ref)
	}
	if len(data) > maxManifest {
		return nil, h, "", sandbox.Errorf(sandbox.Invalid, "the manifest is larger than %s", sandbox.FormatBytes(maxManifest))
	}
	if h, _, err = v1.SHA256(bytes.NewReader(data)); err != nil {
		return nil, h, "", err
	}
	if want, err := v1.NewHash(id); err == nil && want != h {
		return nil, h, "", sandbox.Errorf(sandbox.Invalid, "the registry sent a manifest with the digest %s for %s", h, want)
	}
	mime, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	return data, h, types.MediaType(mime), nil
}

// explainRegistry adds the kind and a hint to an error of a registry or of the
// connection to it.
func explainRegistry(err error, ref name.Reference) error {
	host, image := shown(ref.Context().RegistryStr()), familiar(ref.Name())
	if known := new(sandbox.Error); errors.As(err, &known) {
		return known
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	answer := new(transport.Error)
	if !errors.As(err, &answer) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "registry %s: %w", host, unwrapURL(err)),
			"check the name, and the network of this machine; without a network, glovebox images load takes images from a file")
	}
	switch code := answer.StatusCode; {
	case code == http.StatusUnauthorized || code == http.StatusForbidden:
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "registry %s does not have %s, or denies access", host, image),
			"check the name; for a private image, first use docker login %s or podman login %s", host, host)
	case code == http.StatusNotFound:
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "registry %s has no %s", host, image), "check the name and the tag")
	case code == http.StatusTooManyRequests:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "registry %s has limited the rate of requests", host),
			"wait, or log in: the limit of known users is higher")
	default:
		return sandbox.Errorf(sandbox.Unavailable, "registry %s answered with %d %s", host, code, http.StatusText(code))
	}
}

// unwrapURL removes the URL from an error, because it may contain credentials.
func unwrapURL(err error) error {
	if u := new(url.Error); errors.As(err, &u) {
		return u.Err
	}
	return err
}
