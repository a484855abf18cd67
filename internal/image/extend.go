package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Extension describes an image that is made from another.
type Extension struct {
	// Base is an image in the store, or [sandbox.ImageScratch].
	Base string
	// Layer, if not nil, is a layer above the base's layers, uncompressed.
	Layer io.Reader
	// Config replaces the part of the base's configuration that it can express.
	// The rest, such as a health check, comes from the base.
	Config sandbox.ImageConfig
	// Name is the name of the new image. An image that has this name loses it.
	Name string
	// By is the command that made the layer, for the image's history.
	By string
	// Progress, if not nil, receives the progress.
	Progress func(sandbox.ImageProgress)
}

// Extend makes an image from another and adds it to the store. If it fails, no
// image is added.
func (s *Store) Extend(ctx context.Context, x Extension) (sandbox.Image, error) {
	i, err := s.extend(ctx, x)
	return i, sandbox.Wrap(err, "make image", x.Name)
}

func (s *Store) extend(ctx context.Context, x Extension) (_ sandbox.Image, err error) {
	none := sandbox.Image{}
	full, err := canonical(x.Name)
	if err != nil {
		return none, err
	}
	done, err := s.use(ctx)
	if err != nil {
		return none, err
	}
	if err := s.prepare(); err != nil {
		done()
		return none, explainWrite(err)
	}
	r, err := s.extended(ctx, x)
	if err == nil {
		err = s.change(ctx, func(index *index) { index.Images[full] = r })
	}
	i := none
	if err == nil {
		i, err = s.describe(full, r)
	}
	done()
	if err != nil {
		return none, errors.Join(err, s.abandon(r))
	}
	s.tidy(full)
	return i, nil
}

// extended adds the parts of an extension to the store. With an error, it returns
// a record of the parts that exist so far.
func (s *Store) extended(ctx context.Context, x Extension) (*record, error) {
	r := &record{Platform: platformName(), Local: true, Since: time.Now()}
	base, c, err := s.base(x.Base)
	if err != nil {
		return r, err
	}
	r.Layers = append(r.Layers, base.Layers...)
	now := v1.Time{Time: r.Since.UTC()}
	history := v1.History{Created: now, CreatedBy: x.By, EmptyLayer: x.Layer == nil}
	if x.Layer != nil {
		bounded := &boundedReader{r: x.Layer, left: s.opts.Limits.Bytes}
		l, err := s.addLayer(ctx, bounded, func(int64) {})
		if err != nil {
			if bounded.left < 0 {
				err = tooLarge(s.opts.Limits.Bytes)
			}
			return r, err
		}
		l.Diff = l.Blob
		r.Layers = append(r.Layers, l)
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, l.Blob)
	}
	c.Created, c.History = now, append(c.History, history)
	c.Config.Env, c.Config.User, c.Config.WorkingDir = x.Config.Env, x.Config.User, x.Config.WorkDir
	c.Config.Entrypoint, c.Config.Cmd, c.Config.Labels = x.Config.Entrypoint, x.Config.Cmd, x.Config.Labels
	c.Config.ExposedPorts = map[string]struct{}{}
	for _, p := range x.Config.Ports {
		c.Config.ExposedPorts[p] = struct{}{}
	}
	config, err := json.Marshal(c)
	if err != nil {
		return r, err
	}
	if _, err := parseConfig(config); err != nil {
		return r, err
	}
	sum := sha256.Sum256(config)
	r.Config = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}
	return r, s.finish(ctx, r, config, nil, x.Progress)
}

// base returns an image in the store, or the empty image, which is not in the
// index.
func (s *Store) base(ref string) (*record, *v1.ConfigFile, error) {
	if ref == sandbox.ImageScratch {
		p := platform()
		return &record{}, &v1.ConfigFile{OS: p.OS, Architecture: p.Architecture, RootFS: v1.RootFS{Type: "layers"}}, nil
	}
	_, r, err := s.find(ref)
	if err != nil {
		return nil, nil, err
	}
	c, err := s.config(r.Config)
	return r, c, err
}

// A boundedReader fails after left bytes.
type boundedReader struct {
	r    io.Reader
	left int64
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, os.ErrInvalid
	}
	return n, err
}
