package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/image/erofs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Root is the root file system of an image. While it is open, the store does
// not remove the file. A sandbox that has opened the file does not need the Root
// any more.
type Root struct {
	// Path is the path of an EROFS image, which does not change.
	Path   string
	Config sandbox.ImageConfig

	done func()
}

// Close releases the root. The store may remove the file from then on.
func (r *Root) Close() { r.done() }

// Root returns the root file system of an image in the store; see [Store.Image].
// The caller closes it. If there is no such image, the error is of kind NotFound.
func (s *Store) Root(ctx context.Context, ref string) (_ *Root, err error) {
	done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			done()
		}
	}()
	r, c, err := s.base(ref)
	if err != nil {
		return nil, err
	}
	path := s.rootPath(r)
	// The modification time records the last use, for describe.
	now := time.Now()
	if err := os.Chtimes(path, now, now); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if err := s.unpack(ctx, r, nil); err != nil {
			return nil, err
		}
	}
	return &Root{Path: path, Config: configOf(c), done: done}, nil
}

// rootFormat is part of the file name of a root. A version of the program that
// makes roots differently uses another format, and so other files.
const rootFormat = "1"

// rootName returns the file name of the root that an image's layers make. Images
// with the same layers share a root, even if their configurations differ.
func (r *record) rootName() string {
	h := sha256.New()
	for _, l := range r.Layers {
		fmt.Fprintln(h, l.Diff)
	}
	return hex.EncodeToString(h.Sum(nil)) + "." + rootFormat + ".erofs"
}

func (s *Store) rootPath(r *record) string { return s.path(rootsDir, r.rootName()) }

// unpack makes the root of an image whose blobs are in the store, unless the root
// exists.
func (s *Store) unpack(ctx context.Context, r *record, progress func(sandbox.ImageProgress)) (err error) {
	name := r.rootName()
	unlock, err := s.lock(ctx, "root-"+name, true, waitStep(progress))
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := os.Stat(s.path(rootsDir, name)); err == nil {
		return nil
	}
	// Truncate a file that a killed process left.
	path := s.path(partialDir, name)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return explainWrite(err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	defer f.Close()
	if err := s.build(ctx, f, r, progress); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return explainWrite(err)
	}
	return os.Rename(path, s.path(rootsDir, name))
}

// build writes the image of r's layers to f.
func (s *Store) build(ctx context.Context, f *os.File, r *record, progress func(sandbox.ImageProgress)) error {
	w := erofs.NewWriter(f)
	u := newUnpacker(w, s.opts.Limits)
	var total, done int64
	for _, l := range r.Layers {
		total += l.Size
	}
	for i, l := range r.Layers {
		read := func(n int64) {
			done += n
			report(progress, sandbox.ImageProgress{Step: "unpack", Done: done, Total: total})
		}
		if err := s.applyLayer(ctx, u, l, read); err != nil {
			return sandbox.Wrap(err, fmt.Sprintf("layer %d of %d:", i+1, len(r.Layers)), l.Diff.String())
		}
	}
	if err := u.complete(); err != nil {
		return err
	}
	return explainWrite(w.Finish(u.finished()))
}

// applyLayer applies a layer, and checks that its digest is the one in the
// configuration.
func (s *Store) applyLayer(ctx context.Context, u *unpacker, l layer, read func(int64)) error {
	blob, err := os.Open(s.blobPath(l.Blob))
	if err != nil {
		return err
	}
	defer blob.Close()
	data, err := decompress(&contextReader{ctx, blob, read}, s.opts.Limits.Ratio)
	if err != nil {
		return err
	}
	sum := sha256.New()
	ahead := readAhead(io.TeeReader(data, sum))
	err = u.apply(ahead)
	ahead.Close()
	data.Close()
	if err := ctx.Err(); err != nil {
		return err // a cancelled read looks like a broken archive
	}
	if err != nil {
		if errors.Is(err, sandbox.Invalid) {
			err = errors.Join(err, s.verify(l.Blob))
		}
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != l.Diff.Hex {
		if err := s.verify(l.Blob); err != nil {
			return err
		}
		return sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "the content has the digest sha256:%s", got),
			"build the image again: this one is broken")
	}
	return nil
}

// verify checks a blob that cannot be used. If its digest is wrong, verify
// removes it, so that it is fetched again.
func (s *Store) verify(h v1.Hash) error {
	f, err := os.Open(s.blobPath(h))
	if err != nil {
		return err
	}
	defer f.Close()
	got, _, err := v1.SHA256(f)
	if err != nil || got == h {
		return err
	}
	return errors.Join(os.Remove(f.Name()), sandbox.WithHint(
		sandbox.Errorf(sandbox.Internal, "%s changed on the disk", h), "pull the image again; the disk may be failing"))
}

// A contextReader reads until its context ends, and calls read with each count.
type contextReader struct {
	ctx  context.Context
	r    io.Reader
	read func(int64)
}

func (r *contextReader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.r.Read(b)
	r.read(int64(n))
	return n, err
}

func report(progress func(sandbox.ImageProgress), p sandbox.ImageProgress) {
	if progress != nil {
		progress(p)
	}
}

// waitStep returns a function that reports that another process is at work.
func waitStep(progress func(sandbox.ImageProgress)) func() {
	return func() { report(progress, sandbox.ImageProgress{Step: "wait"}) }
}
