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

// PullOptions say how to pull.
type PullOptions struct {
	// Missing fetches nothing if the image is here, whatever the registry has
	// under that name by now.
	Missing bool
	// Anywhere lets registries have any address: the operator asks. Else theirs
	// are public, or the operator lists them.
	Anywhere bool
	// Progress, if not nil, is told how far it is; calls do not overlap.
	Progress func(sandbox.ImageProgress)
}

// fetchesAtOnce is how many layers of an image are fetched at one time.
const fetchesAtOnce = 4

// Pull fetches an image and makes its root file system. What was fetched
// already, for this image or another, is not fetched again, and what several
// processes want is fetched once. If ctx ends, what was fetched stays, and the
// next Pull continues. The error is of kind NotFound if the registry does not
// have it or denies it, Unavailable if it cannot be reached, Unsupported if the
// image is for other machines, Invalid if it is broken, and Exhausted if it is
// above a limit or the disk is full.
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
		return none, sandbox.Errorf(sandbox.NotFound, "an image without a name is only here or nowhere")
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
		return i, nil // another did it meanwhile
	}
	done, err := s.use(ctx)
	if err != nil {
		return none, err
	}
	r, err := s.pullFrom(ctx, parsed, opts)
	// Also one that failed tells what there is of it.
	if err == nil {
		err = s.change(ctx, func(x *index) { x.Images[full] = r })
	}
	var i sandbox.Image
	if err == nil {
		i, err = s.describe(full, r)
	}
	done()
	if errors.Is(err, sandbox.Exhausted) {
		// What was fetched of it takes space that is needed.
		return none, errors.Join(err, s.abandon(r))
	}
	if err == nil {
		s.tidy(full)
	}
	return i, err
}

// since returns when an image came here, the zero time if it did not.
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
		return nil, sandbox.Errorf(sandbox.Unsupported, "the registry has something of type %s, which is no image", quote(string(kind)))
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

// unreadable is the error of what cannot be parsed. It may be right all the same,
// with digests of another kind than those that are known.
func unreadable(what string, err error) error {
	kind := sandbox.Invalid
	if strings.Contains(err.Error(), "unsupported hash") {
		kind = sandbox.Unsupported
	}
	return sandbox.Errorf(kind, "the %s is not readable: %w", what, err)
}

// choose picks from an index the manifest that is for this machine.
func choose(data []byte) (v1.Hash, error) {
	x, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return v1.Hash{}, unreadable("index", err)
	}
	for _, m := range x.Manifests {
		if m.Digest.Hex == "" {
			return v1.Hash{}, sandbox.Errorf(sandbox.Invalid, "the index names something without a digest")
		}
	}
	want := platform()
	var has []string
	for _, m := range x.Manifests {
		p := m.Platform
		if p == nil || p.OS == "unknown" {
			continue // says where the others come from
		}
		if p.OS == want.OS && p.Architecture == want.Architecture {
			return m.Digest, nil
		}
		has = append(has, p.String())
	}
	if len(has) == 0 && len(x.Manifests) == 1 {
		return x.Manifests[0].Digest, nil // which does not say
	}
	if len(has) == 0 {
		has = []string{"none"}
	}
	return v1.Hash{}, wrongPlatform(has)
}

// parseManifest reads and checks a manifest.
func (s *Store) parseManifest(data []byte) (*v1.Manifest, error) {
	m, err := v1.ParseManifest(bytes.NewReader(data))
	if err != nil {
		return nil, unreadable("manifest", err)
	}
	if len(m.Layers) > maxLayers {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers, and may have %d", len(m.Layers), maxLayers)
	}
	// Registries of old do not say what a configuration is.
	if k := m.Config.MediaType; !k.IsConfig() && k != "" && k != "application/octet-stream" {
		return nil, sandbox.Errorf(sandbox.Unsupported, "the registry has something with a configuration of type %s, which is no image", quote(string(k)))
	}
	if m.Config.Size < 0 || m.Config.Size > maxConfig {
		return nil, sandbox.Errorf(sandbox.Invalid, "the image's configuration has %d bytes, and may have %d", m.Config.Size, maxConfig)
	}
	total := int64(0)
	for _, d := range append([]v1.Descriptor{m.Config}, m.Layers...) {
		if d.Digest.Algorithm != "sha256" || len(d.Digest.Hex) != 2*sha256.Size {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the digest %s is not of sha256", quote(d.Digest.String()))
		}
		if d.Size < 0 || d.Size > s.opts.Limits.Bytes-total {
			return nil, tooLarge(s.opts.Limits.Bytes)
		}
		total += d.Size
	}
	for _, d := range m.Layers {
		if !d.MediaType.IsLayer() || !d.MediaType.IsDistributable() {
			return nil, sandbox.Errorf(sandbox.Unsupported, "the image has a layer of type %s, which is no part of a file system here", quote(string(d.MediaType)))
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
	// Before the layers: they are large, and it may be for another machine.
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
				cancel(err) // the first says why; the others then end
			}
		})
	}
	fetches.Wait()
	return context.Cause(ctx)
}

// complete fills in what a record says of layers, from its configuration, which
// is here by now.
func (s *Store) complete(r *record) error {
	c, err := s.config(r.Config)
	if err != nil {
		return err
	}
	if len(c.RootFS.DiffIDs) != len(r.Layers) {
		return sandbox.Errorf(sandbox.Invalid, "the manifest has %d layers, but the configuration %d", len(r.Layers), len(c.RootFS.DiffIDs))
	}
	for n, diff := range c.RootFS.DiffIDs {
		if diff.Algorithm != "sha256" || len(diff.Hex) != 2*sha256.Size {
			return sandbox.Errorf(sandbox.Unsupported, "the digest %s is not of sha256", quote(diff.String()))
		}
		r.Layers[n].Diff = diff
	}
	return nil
}
