package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PullOptions configure a pull.
type PullOptions struct {
	// Missing fetches nothing if the store has an image of that name, even if the
	// registry has a newer one.
	Missing bool
	// Anywhere lets registries have any address, for calls of the operator.
	// Without it, registries must have public addresses or be listed by the
	// operator.
	Anywhere bool
	// Progress, if not nil, receives the progress. Calls do not overlap.
	Progress func(sandbox.ImageProgress)
}

// fetchesAtOnce bounds the layers of an image that are fetched at one time.
const fetchesAtOnce = 4

// Pull fetches an image and unpacks its root file system. It does not fetch blobs
// again that the store has, for this image or another. Blobs that several
// processes need are fetched once. If ctx ends, the fetched bytes stay, and the
// next Pull continues.
//
// The error is of kind NotFound if the registry does not have the image or denies
// access. It is Unavailable if the registry cannot be reached, Unsupported if the
// image is for other platforms, and Invalid if it is broken. It is Exhausted if
// the image exceeds a limit or the disk is full.
func (s *Store) Pull(ctx context.Context, ref string, opts PullOptions) (sandbox.Image, error) {
	i, err := s.pull(ctx, ref, opts)
	return i, sandbox.Wrap(err, "pull image", ref)
}

func (s *Store) pull(ctx context.Context, ref string, opts PullOptions) (sandbox.Image, error) {
	none := sandbox.Image{}
	if opts.Missing {
		i, err := s.Image(ctx, ref)
		if err == nil || !errors.Is(err, sandbox.NotFound) {
			return i, err
		}
	}
	if _, err := v1.NewHash(ref); err == nil {
		return none, sandbox.Errorf(sandbox.NotFound, "an image without a name cannot be fetched")
	}
	parsed, err := parse(ref)
	if err != nil {
		return none, err
	}
	if err := s.prepare(); err != nil {
		return none, explainWrite(err)
	}
	since := time.Now()
	full := parsed.Name()
	sum := sha256.Sum256([]byte(full))
	unlock, err := s.lock(ctx, "pull-"+hex.EncodeToString(sum[:16]), true, waitStep(opts.Progress))
	if err != nil {
		return none, err
	}
	defer unlock()
	if i, err := s.Image(ctx, full); err == nil && (opts.Missing || s.since(full).After(since)) {
		return i, nil // another process pulled it meanwhile
	}
	done, err := s.use(ctx)
	if err != nil {
		return none, err
	}
	r, err := s.pullFrom(ctx, parsed, opts)
	// With an error, the record describes the parts that exist.
	if err == nil {
		err = s.change(ctx, func(x *index) { x.Images[full] = r })
	}
	var i sandbox.Image
	if err == nil {
		i, err = s.describe(full, r)
	}
	done()
	if errors.Is(err, sandbox.Exhausted) {
		// The fetched parts take space that is needed.
		return none, errors.Join(err, s.abandon(r))
	}
	if err == nil {
		s.tidy(full)
	}
	return i, err
}

// since returns when an image was added, or the zero time if it was not.
func (s *Store) since(full string) time.Time {
	x, err := s.index()
	if err != nil || x.Images[full] == nil {
		return time.Time{}
	}
	return x.Images[full].Since
}

// pullFrom pulls from the first source that has the image.
func (s *Store) pullFrom(ctx context.Context, ref name.Reference, opts PullOptions) (*record, error) {
	sources, err := s.sources(ref)
	if err != nil {
		return nil, err
	}
	for n, from := range sources {
		report(opts.Progress, sandbox.ImageProgress{Step: "resolve"})
		var src *source
		var r *record
		if src, err = s.connect(ctx, from, n < len(sources)-1, opts.Anywhere); err == nil {
			r, err = s.pullOne(ctx, src, opts.Progress)
			src.close()
		}
		if err == nil || ctx.Err() != nil || errors.Is(err, sandbox.Exhausted) {
			return r, err
		}
		if n < len(sources)-1 {
			s.opts.Log.Warn("mirror", "image", familiar(from.Name()), "error", err)
		}
	}
	return nil, err
}

func (s *Store) pullOne(ctx context.Context, src *source, progress func(sandbox.ImageProgress)) (*record, error) {
	data, h, kind, err := src.manifest(ctx, src.ref.Identifier())
	if err != nil {
		return nil, err
	}
	if kind.IsIndex() {
		child, err := choose(data)
		if err != nil {
			return nil, err
		}
		if data, h, kind, err = src.manifest(ctx, child.String()); err != nil {
			return nil, err
		}
	}
	if !kind.IsImage() {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the registry has an object of type %s, which is not an image", quote(string(kind)))
	}
	m, err := s.parseManifest(data)
	if err != nil {
		return nil, err
	}
	r := &record{Manifest: h, Config: m.Config.Digest, Platform: platformName(), Since: time.Now()}
	for _, d := range m.Layers {
		r.Layers = append(r.Layers, layer{Blob: d.Digest, Size: d.Size})
	}
	if err := s.keep(h, data); err != nil {
		return r, err
	}
	if err := s.fetchAll(ctx, src, m, progress); err != nil {
		return r, err
	}
	if err := s.complete(r); err != nil {
		return r, err
	}
	return r, s.unpack(ctx, r, progress)
}

func platformName() string {
	p := platform()
	return p.String()
}

// unreadable returns the error for a text that cannot be parsed. It is of kind
// Unsupported if the text uses an unknown digest algorithm, because it may be
// valid.
func unreadable(what string, err error) error {
	kind := sandbox.Invalid
	if strings.Contains(err.Error(), "unsupported hash") {
		kind = sandbox.Unsupported
	}
	return sandbox.Errorf(kind, "the %s is not readable: %w", what, err)
}

// choose selects the manifest for this platform from an index.
func choose(data []byte) (v1.Hash, error) {
	x, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return v1.Hash{}, unreadable("index", err)
	}
	for _, m := range x.Manifests {
		if m.Digest.Hex == "" {
			return v1.Hash{}, sandbox.Errorf(sandbox.Invalid, "the index has an entry without a digest")
		}
	}
	want := platform()
	var has []string
	for _, m := range x.Manifests {
		p := m.Platform
		if p == nil || p.OS == "unknown" {
			continue // an attestation of another manifest
		}
		if p.OS == want.OS && p.Architecture == want.Architecture {
			return m.Digest, nil
		}
		has = append(has, p.String())
	}
	if len(has) == 0 && len(x.Manifests) == 1 {
		return x.Manifests[0].Digest, nil // its platform is not given
	}
	if len(has) == 0 {
		has = []string{"none"}
	}
	return v1.Hash{}, wrongPlatform(has)
}

// parseManifest parses and checks a manifest.
func (s *Store) parseManifest(data []byte) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, unreadable("manifest", err)
	}
	if len(m.Layers) > maxLayers {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers; the maximum is %d", len(m.Layers), maxLayers)
	}
	// Old registries do not give the media type of a configuration.
	if k := m.Config.MediaType; !k.IsConfig() && k != "" && k != "application/octet-stream" {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the registry has an object with a configuration of type %s, which is not an image", quote(string(k)))
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return nil, sandbox.Errorf(sandbox.Invalid, "the configuration of the image has %d bytes; the maximum is %d", m.Config.Size, maxConfig)
	}
	total := int64(0)
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 2*sha256.Size {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the digest %s is not a SHA-256 digest", quote(d.Digest.String()))
		}
		if d.Size < 0 || d.Size > s.opts.Limits.Bytes-total {
			return nil, tooLarge(s.opts.Limits.Bytes)
		}
		total += d.Size
	}
	for _, d := range m.Layers {
		if !d.MediaType.IsLayer() || !d.MediaType.IsDistributable() {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the image has a layer of type %s, which is not supported", quote(string(d.MediaType)))
		}
	}
	return m, nil
}

// fetchAll fetches an image's configuration, then its layers.
func (s *Store) fetchAll(ctx context.Context, src *source, m *v1.Manifest, progress func(sandbox.ImageProgress)) error {
	total := m.Config.Size
	for _, d := range m.Layers {
		total += d.Size
	}
	var mu sync.Mutex
	var done int64
	read := func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		done += n
		report(progress, sandbox.ImageProgress{Step: "fetch", Done: done, Total: total})
	}
	if err := s.fetch(ctx, src, blobFetch{m.Config.Digest, m.Config.Size, read}); err != nil {
		return err
	}
	// Check the configuration before the layers, because layers are large, and
	// the image may be for another platform.
	if _, err := s.config(m.Config.Digest); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	places := make(chan struct{}, fetchesAtOnce)
	var fetches sync.WaitGroup
	for _, d := range m.Layers {
		fetches.Go(func() {
			select {
			case places <- struct{}{}:
				defer func() { <-places }()
			case <-ctx.Done():
				return
			}
			if err := s.fetch(ctx, src, blobFetch{d.Digest, d.Size, read}); err != nil {
				cancel(err) // the first error is the cause; the other fetches end
			}
		})
	}
	fetches.Wait()
	return context.Cause(ctx)
}

// complete sets the digests of the uncompressed layers in r from its
// configuration, which is in the store.
func (s *Store) complete(r *record) error {
	c, err := s.config(r.Config)
	if err != nil {
		return err
	}
	if len(c.RootFS.DiffIDs) != len(r.Layers) {
		return sandbox.Errorf(sandbox.Invalid, "the manifest has %d layers, but the configuration has %d", len(r.Layers), len(c.RootFS.DiffIDs))
	}
	for n, diff := range c.RootFS.DiffIDs {
		if diff.Algorithm != "sha256" || len(diff.Hex) != 2*sha256.Size {
			return sandbox.Errorf(sandbox.Unsupported, "the digest %s is not a SHA-256 digest", quote(diff.String()))
		}
		r.Layers[n].Diff = diff
	}
	return nil
}
