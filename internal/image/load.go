package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// LoadOptions configure a load.
type LoadOptions struct {
	// Name is the name of the image. An archive with one image and no name needs
	// it. It is an error for an archive with several images.
	Name string
	// Progress, if not nil, receives the progress. Calls do not overlap.
	Progress func(sandbox.ImageProgress)
}

// Load adds the images of an archive made by docker save or podman save, or of an
// archive or directory in OCI layout. It adds all of them or none. Errors have the
// kinds of [Store.Pull].
func (s *Store) Load(ctx context.Context, file string, opts LoadOptions) ([]sandbox.Image, error) {
	f, err := s.openFiles(ctx, file)
	if err != nil {
		return nil, sandbox.Wrap(err, "load images", "")
	}
	images, err := s.load(ctx, f, opts)
	return images, sandbox.Wrap(errors.Join(err, f.close()), "load images", "")
}

// LoadFrom is [Store.Load] for an archive that is read from a stream.
func (s *Store) LoadFrom(ctx context.Context, r io.Reader, opts LoadOptions) ([]sandbox.Image, error) {
	done, err := s.use(ctx) // so that tidy does not remove the spooled file
	if err != nil {
		return nil, err
	}
	f, err := s.spool(ctx, r)
	done()
	if err != nil {
		return nil, sandbox.Wrap(err, "load images", "")
	}
	images, err := s.load(ctx, f, opts)
	return images, sandbox.Wrap(errors.Join(err, f.close()), "load images", "")
}

// A found is an image in an archive: its names, and the names of its parts.
type found struct {
	names  []string
	config string
	layers []string
	// digests are the digests of the parts, the configuration first. It is empty
	// if the archive does not name them.
	digests []v1.Hash
	// manifest is the archive's manifest, or nil.
	manifest []byte
}

func (s *Store) load(ctx context.Context, f files, opts LoadOptions) (_ []sandbox.Image, err error) {
	images, err := s.findImages(f)
	if err != nil {
		return nil, err
	}
	if opts.Name != "" {
		if len(images) != 1 {
			return nil, sandbox.Errorf(sandbox.Invalid, "name: the archive has %d images, which cannot all have the name %s", len(images), quote(opts.Name))
		}
		images[0].names = []string{opts.Name}
	}
	done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.prepare(); err != nil {
		done()
		return nil, explainWrite(err)
	}
	var all []*record
	records := map[string]*record{}
	for _, i := range images {
		if len(i.names) == 0 {
			err = sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: the archive has no name for its image"), "set one with --name")
			break
		}
		var r *record
		r, err = s.take(ctx, f, i, opts.Progress)
		all = append(all, r)
		if err != nil {
			break
		}
		for _, n := range i.names {
			var full string
			if full, err = canonical(n); err != nil {
				break
			}
			records[full] = r
		}
	}
	if err == nil {
		err = s.change(ctx, func(x *index) {
			for full, r := range records {
				x.Images[full] = r
			}
		})
	}
	var list []sandbox.Image
	for full, r := range records {
		if err != nil {
			break
		}
		var i sandbox.Image
		i, err = s.describe(full, r)
		list = append(list, i)
	}
	done()
	if err != nil {
		for _, r := range all {
			err = errors.Join(err, s.abandon(r))
		}
		return nil, err
	}
	s.tidy("")
	return list, nil
}

// findImages finds the images in an archive.
func (s *Store) findImages(f files) ([]found, error) {
	data, err := readAll(f, "manifest.json", maxManifest)
	if err == nil {
		return savedImages(data)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	data, err = readAll(f, "index.json", maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the archive has no image: manifest.json and index.json are missing"),
			"make the file with docker save, not with docker export")
	}
	if err != nil {
		return nil, err
	}
	return s.layoutImages(f, data)
}

// savedImages parses the manifest.json of docker save.
func savedImages(data []byte) ([]found, error) {
	var saved []struct {
		Config   string
		RepoTags []string
		Layers   []string
	}
	if err := json.Unmarshal(data, &saved); err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "manifest.json is not readable: %w", err)
	}
	var images []found
	for _, i := range saved {
		if len(i.Layers) > maxLayers {
			return nil, sandbox.Errorf(sandbox.Invalid, "the image has %d layers; the maximum is %d", len(i.Layers), maxLayers)
		}
		images = append(images, found{names: i.RepoTags, config: i.Config, layers: i.Layers})
	}
	if len(images) == 0 {
		return nil, sandbox.Errorf(sandbox.Invalid, "the archive has no image")
	}
	return images, nil
}

// The annotations that name the images of a layout.
const (
	annotationName    = "io.containerd.image.name"
	annotationRefName = "org.opencontainers.image.ref.name"
)

// maxIndexDepth bounds the nesting of indexes.
const maxIndexDepth = 3

// layoutImages parses the index.json of a layout: one image for each entry.
func (s *Store) layoutImages(f files, data []byte) ([]found, error) {
	x, err := v1.ParseIndexManifest(bytes.NewReader(data))
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Invalid, "index.json is not readable: %w", err)
	}
	var images []found
	var wrong error
	for _, d := range x.Manifests {
		i, err := s.layoutImage(f, d, 1)
		if errors.Is(err, sandbox.Unsupported) && len(x.Manifests) > 1 {
			wrong = err // for another platform; the next entry may be for this platform
			continue
		}
		if err != nil {
			return nil, err
		}
		name := d.Annotations[annotationName]
		if name == "" {
			name = d.Annotations[annotationRefName]
		}
		if name != "" {
			i.names = []string{name}
		}
		images = append(images, i)
	}
	if len(images) == 0 {
		if wrong != nil {
			return nil, wrong
		}
		return nil, sandbox.Errorf(sandbox.Invalid, "the archive has no image")
	}
	return images, nil
}

func blobName(h v1.Hash) string { return "blobs/" + h.Algorithm + "/" + h.Hex }

func (s *Store) layoutImage(f files, d v1.Descriptor, depth int) (found, error) {
	if p := d.Platform; p != nil && p.OS != "unknown" && (p.OS != platform().OS || p.Architecture != platform().Architecture) {
		return found{}, wrongPlatform([]string{p.String()})
	}
	data, err := readAll(f, blobName(d.Digest), maxManifest)
	if err != nil {
		return found{}, missing(err)
	}
	if h, _, _ := v1.SHA256(bytes.NewReader(data)); h != d.Digest {
		return found{}, sandbox.Errorf(sandbox.Invalid, "the content of %s has the digest %s", d.Digest, h)
	}
	if d.MediaType.IsIndex() {
		if depth >= maxIndexDepth {
			return found{}, sandbox.Errorf(sandbox.Invalid, "the index has too many levels")
		}
		child, err := choose(data)
		if err != nil {
			return found{}, err
		}
		return s.layoutImage(f, v1.Descriptor{MediaType: kindOf(data), Digest: child}, depth+1)
	}
	m, err := s.parseManifest(data)
	if err != nil {
		return found{}, err
	}
	i := found{config: blobName(m.Config.Digest), digests: []v1.Hash{m.Config.Digest}, manifest: data}
	for _, l := range m.Layers {
		i.layers = append(i.layers, blobName(l.Digest))
		i.digests = append(i.digests, l.Digest)
	}
	return i, nil
}

// kindOf returns the media type of an index's entries. The index does not contain
// indexes.
func kindOf(data []byte) types.MediaType {
	if x, err := v1.ParseIndexManifest(bytes.NewReader(data)); err == nil && len(x.Manifests) > 0 {
		return x.Manifests[0].MediaType
	}
	return types.OCIManifestSchema1
}

func missing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.Invalid, "the archive lacks a part of the image: %w", err)
	}
	return err
}

// take adds one image to the store. With an error, it returns a record of the
// parts that exist so far.
func (s *Store) take(ctx context.Context, f files, i found, progress func(sandbox.ImageProgress)) (*record, error) {
	r := &record{Platform: platformName(), Local: true, Since: time.Now()}
	data, err := readAll(f, i.config, maxConfig)
	if err != nil {
		return r, missing(err)
	}
	c, err := parseConfig(data)
	if err != nil {
		return r, err
	}
	if r.Config, _, err = v1.SHA256(bytes.NewReader(data)); err != nil {
		return r, err
	}
	if len(i.digests) > 0 && r.Config != i.digests[0] {
		return r, sandbox.Errorf(sandbox.Invalid, "the content of %s has the digest %s", i.digests[0], r.Config)
	}
	if len(c.RootFS.DiffIDs) != len(i.layers) {
		return r, sandbox.Errorf(sandbox.Invalid, "the image has %d layers, but its configuration names %d", len(i.layers), len(c.RootFS.DiffIDs))
	}
	var done int64
	for n, name := range i.layers {
		l, err := s.takeLayer(ctx, f, name, func(n int64) {
			done += n
			report(progress, sandbox.ImageProgress{Step: "fetch", Done: done})
		})
		if err != nil {
			return r, missing(err)
		}
		r.Layers = append(r.Layers, l)
		if len(i.digests) > 0 && l.Blob != i.digests[n+1] {
			return r, sandbox.Errorf(sandbox.Invalid, "the content of %s has the digest %s", i.digests[n+1], l.Blob)
		}
	}
	return r, s.finish(ctx, r, data, i.manifest, progress)
}

// finish stores an image's configuration and its manifest, and unpacks its root.
// It makes a manifest if there is none.
func (s *Store) finish(ctx context.Context, r *record, config, manifest []byte, progress func(sandbox.ImageProgress)) error {
	if err := s.keep(r.Config, config); err != nil {
		return err
	}
	if err := s.complete(r); err != nil {
		return err
	}
	if manifest == nil {
		m := v1.Manifest{
			SchemaVersion: 2, MediaType: types.OCIManifestSchema1,
			Config: v1.Descriptor{MediaType: types.OCIConfigJSON, Size: int64(len(config)), Digest: r.Config},
			Layers: []v1.Descriptor{},
		}
		for _, l := range r.Layers {
			m.Layers = append(m.Layers, v1.Descriptor{MediaType: types.OCIUncompressedLayer, Size: l.Size, Digest: l.Blob})
		}
		var err error
		if manifest, err = json.Marshal(m); err != nil {
			return err
		}
	}
	var err error
	if r.Manifest, _, err = v1.SHA256(bytes.NewReader(manifest)); err != nil {
		return err
	}
	if err := s.keep(r.Manifest, manifest); err != nil {
		return err
	}
	return s.unpack(ctx, r, progress)
}

// takeLayer copies a layer into the store unchanged.
func (s *Store) takeLayer(ctx context.Context, f files, name string, read func(int64)) (layer, error) {
	data, size, err := f.open(name)
	if err != nil {
		return layer{}, err
	}
	defer data.Close()
	if size > s.opts.Limits.Bytes {
		return layer{}, tooLarge(s.opts.Limits.Bytes)
	}
	return s.addLayer(ctx, data, read)
}

// addLayer adds a layer whose digest is not known yet.
func (s *Store) addLayer(ctx context.Context, data io.Reader, read func(int64)) (_ layer, err error) {
	tmp, err := os.CreateTemp(s.path(partialDir), "layer-*")
	if err != nil {
		return layer{}, explainWrite(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	defer tmp.Close()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(tmp, sum), &contextReader{ctx, data, read})
	if err == nil {
		err = tmp.Sync()
	}
	if err != nil {
		return layer{}, explainWrite(err)
	}
	h := v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum.Sum(nil))}
	return layer{Blob: h, Size: n}, os.Rename(tmp.Name(), s.blobPath(h))
}
