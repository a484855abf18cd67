package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Options configure a Store.
type Options struct {
	// Dir is the directory of the store. It is created on first use.
	Dir string
	// Limits bound each image. A zero field takes its value from [DefaultLimits].
	Limits Limits
	// MaxBytes bounds the size of the store, in bytes. Above it, images that came
	// from a registry are removed, the least recently used first. Zero is no
	// bound.
	MaxBytes int64
	// Registries are the hosts of the registries to fetch from. They may have any
	// address. If it is empty, all registries at public addresses are allowed.
	Registries []string
	// Mirrors are tried before a registry, in order. The key is the registry's
	// host. Each mirror is a host, optionally with a path that precedes
	// repository names.
	Mirrors map[string][]string
	// Keychain holds the credentials for registries. Nil means the credentials of
	// docker login and podman login.
	Keychain authn.Keychain
	// Public reports whether a registry that the operator did not name may have
	// an address. Nil is [sandbox.Public].
	Public func(netip.Addr) bool
	// Proxy returns the proxy for a request. Nil is [http.ProxyFromEnvironment].
	Proxy func(*http.Request) (*url.URL, error)
	// Lookup resolves names for requests through a proxy. Nil is this machine's
	// resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Log receives errors of background work. Nil discards them.
	Log *slog.Logger
}

// A Store keeps images. It holds no open files between calls.
type Store struct {
	opts Options
}

// New returns the store in the directory opts.Dir. The error wraps
// [sandbox.Invalid] if the directory is not absolute.
func New(opts Options) (*Store, error) {
	if !filepath.IsAbs(opts.Dir) {
		return nil, sandbox.Errorf(sandbox.Invalid, "image directory %q is not absolute", opts.Dir)
	}
	d := DefaultLimits()
	if opts.Limits.Files == 0 {
		opts.Limits.Files = d.Files
	}
	if opts.Limits.Bytes == 0 {
		opts.Limits.Bytes = d.Bytes
	}
	if opts.Limits.Ratio == 0 {
		opts.Limits.Ratio = d.Ratio
	}
	if opts.Keychain == nil {
		opts.Keychain = authn.DefaultKeychain
	}
	if opts.Public == nil {
		opts.Public = sandbox.Public
	}
	if opts.Proxy == nil {
		opts.Proxy = http.ProxyFromEnvironment
	}
	if opts.Lookup == nil {
		opts.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	return &Store{opts: opts}, nil
}

// The files of the directory. Blobs are the manifests, configurations and layers,
// named by digest. Partial files are incomplete. Roots are made from blobs.
const (
	blobsDir   = "blobs"
	partialDir = "partial"
	rootsDir   = "roots"
	locksDir   = "locks"
	indexFile  = "index.json"
)

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.opts.Dir}, elem...)...)
}

func (s *Store) blobPath(h v1.Hash) string { return s.path(blobsDir, h.Hex) }

// prepare creates the directories.
func (s *Store) prepare() error {
	for _, d := range []string{blobsDir, partialDir, rootsDir, locksDir} {
		if err := os.MkdirAll(s.path(d), 0o700); err != nil {
			return fmt.Errorf("make image store: %w", err)
		}
	}
	return nil
}

// A record is an image in the index. Layers are in order, the lowest first.
type record struct {
	Manifest v1.Hash   `json:"manifest"`
	Config   v1.Hash   `json:"config"`
	Layers   []layer   `json:"layers"`
	Platform string    `json:"platform"`
	Local    bool      `json:"local,omitempty"`
	Since    time.Time `json:"since"`
}

// A layer is a layer of an image: the digest and size of its blob, and the digest
// of its uncompressed form.
type layer struct {
	Blob v1.Hash `json:"blob"`
	Size int64   `json:"size"`
	Diff v1.Hash `json:"diff"`
}

// An index maps the full names of images to their records. Its file is replaced
// by an atomic rename, so reading it needs no lock.
type index struct {
	Version int                `json:"version"`
	Images  map[string]*record `json:"images"`
}

const indexVersion = 1

func (s *Store) index() (*index, error) {
	x := &index{Version: indexVersion, Images: map[string]*record{}}
	data, err := os.ReadFile(s.path(indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return x, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read index of images: %w", err)
	}
	if err := json.Unmarshal(data, x); err != nil {
		return nil, fmt.Errorf("read index of images: %w", err)
	}
	if x.Version != indexVersion {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the images in %s belong to another version of Glovebox", s.opts.Dir),
			"remove that directory, and fetch the images again")
	}
	return x, nil
}

// change changes the index, under its lock.
func (s *Store) change(ctx context.Context, f func(*index)) error {
	unlock, err := s.lock(ctx, "index", true, nil)
	if err != nil {
		return err
	}
	defer unlock()
	x, err := s.index()
	if err != nil {
		return err
	}
	f(x)
	data, err := json.MarshalIndent(x, "", "\t")
	if err != nil {
		return err
	}
	return explainWrite(atomicfile.ReplaceDurably(s.path(indexFile), data, 0o600))
}

// The interval at which a held lock is tried again.
const (
	lockLook    = 10 * time.Millisecond
	maxLockLook = 250 * time.Millisecond
)

// lock takes one of the store's locks and returns a function that releases it. It
// retries while another process holds the lock. waiting, if not nil, is called
// once if it has to wait.
func (s *Store) lock(ctx context.Context, name string, exclusive bool, waiting func()) (unlock func(), err error) {
	path := s.path(locksDir, name)
	for look := lockLook; ; look = min(2*look, maxLockLook) {
		f, err := tryLock(path, exclusive)
		if errors.Is(err, fs.ErrNotExist) {
			err = s.prepare()
			if err == nil {
				continue
			}
		}
		if err != nil {
			return nil, err
		}
		if f != nil {
			return func() {
				if exclusive && name != storeLock {
					// Remove the file while holding the lock. Waiting processes
					// then open a new file.
					_ = os.Remove(path)
				}
				f.Close()
			}, nil
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(look):
		}
	}
}

// storeLock is held shared to read or add files, and exclusively to remove files.
const storeLock = "store"

// use prevents the removal of files until the returned function is called.
func (s *Store) use(ctx context.Context) (done func(), err error) {
	return s.lock(ctx, storeLock, false, nil)
}

// List returns all images, in no particular order.
func (s *Store) List(ctx context.Context) ([]sandbox.Image, error) {
	done, err := s.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	x, err := s.index()
	if err != nil {
		return nil, err
	}
	var list []sandbox.Image
	for name, r := range x.Images {
		i, err := s.describe(name, r)
		if err != nil {
			return nil, sandbox.Wrap(err, "read image", familiar(name))
		}
		list = append(list, i)
	}
	return list, nil
}

// Image returns an image in the store by its name, its digest, its ID, or a
// prefix of its ID. If there is none, the error is of kind NotFound. If several
// images have the prefix, it is of kind Conflict.
func (s *Store) Image(ctx context.Context, ref string) (sandbox.Image, error) {
	done, err := s.use(ctx)
	if err != nil {
		return sandbox.Image{}, err
	}
	defer done()
	name, r, err := s.find(ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	return s.describe(name, r)
}

// describe returns the description of an image.
func (s *Store) describe(name string, r *record) (sandbox.Image, error) {
	c, err := s.config(r.Config)
	if err != nil {
		return sandbox.Image{}, err
	}
	i := sandbox.Image{
		Name: familiar(name), ID: r.Config.String(), Digest: r.Manifest.String(), Platform: r.Platform,
		Created: c.Created.Time, Used: r.Since, Local: r.Local, Config: configOf(c),
	}
	if fi, err := os.Stat(s.rootPath(r)); err == nil {
		i.SizeBytes += diskSize(fi)
		if t := fi.ModTime(); t.After(i.Used) {
			i.Used = t
		}
	}
	for _, l := range r.Layers {
		i.SizeBytes += l.Size
	}
	return i, nil
}

// find finds an image in the store.
func (s *Store) find(ref string) (string, *record, error) {
	x, err := s.index()
	if err != nil {
		return "", nil, err
	}
	if name, r, err := x.byID(ref); err != nil || r != nil {
		return name, r, err
	}
	name, err := canonical(ref)
	if err != nil {
		return "", nil, err
	}
	if r := x.Images[name]; r != nil {
		return name, r, nil
	}
	return "", nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is not here", quote(ref)),
		"fetch it with glovebox images pull %s", ref)
}

// minID is the minimum length of an ID prefix, in hexadecimal digits.
const minID = 12

// byID finds an image by its digest, its ID, or a prefix of its ID of at least
// minID digits. A shorter text is a name. If several images have the prefix, the
// error is of kind Conflict, because an attacker can make an image with a chosen
// prefix.
func (x *index) byID(ref string) (string, *record, error) {
	h, err := v1.NewHash(ref)
	digits := h.Hex
	if err != nil {
		if digits = ref; len(digits) < minID || len(digits) > 64 {
			return "", nil, nil
		}
	}
	var foundName string
	var found *record
	for _, name := range slices.Sorted(maps.Keys(x.Images)) {
		r := x.Images[name]
		if r.Config.Hex[:len(digits)] != digits && (err != nil || r.Manifest != h) {
			continue
		}
		if found != nil && found.Config != r.Config {
			return "", nil, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "image %s: several IDs begin with this", ref), "write more digits of the ID")
		}
		if found == nil {
			foundName, found = name, r
		}
	}
	return foundName, found, nil
}
