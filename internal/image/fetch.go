package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// fetchTries is how often a broken fetch is continued without progress.
	fetchTries = 4
	// fetchStall is how long a registry may send nothing.
	fetchStall = 30 * time.Second
)

// A blobFetch describes a blob to fetch.
type blobFetch struct {
	hash v1.Hash
	size int64
	read func(int64) // called for each piece, and for the bytes that are present already
}

// fetch fetches a blob unless the store has it. It continues an earlier fetch
// that broke off. An atomic rename adds the blob once it is complete and its
// digest is right.
func (s *Store) fetch(ctx context.Context, src *source, b blobFetch) (err error) {
	unlock, err := s.lock(ctx, "blob-"+b.hash.Hex, true, nil)
	if err != nil {
		return err
	}
	defer unlock()
	if fi, err := os.Stat(s.blobPath(b.hash)); err == nil && fi.Size() == b.size {
		b.read(b.size)
		return nil
	}
	path := s.path(partialDir, b.hash.Hex)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return explainWrite(err)
	}
	defer f.Close()
	p := &part{f: f, blobFetch: b}
	if err := p.resume(); err != nil {
		return err
	}
	for tries := 0; p.have < b.size; {
		before := p.have
		err := p.more(ctx, src)
		if err == nil {
			break
		}
		if errors.Is(err, sandbox.Exhausted) || errors.Is(err, sandbox.Invalid) {
			// The fetch cannot be continued, or the disk has no space for it.
			return errors.Join(err, os.Remove(path))
		}
		if tries++; p.have > before {
			tries = 0
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if tries >= fetchTries || errors.Is(err, sandbox.NotFound) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second << tries / 4):
		}
	}
	if got := hex.EncodeToString(p.sum.Sum(nil)); got != b.hash.Hex {
		return errors.Join(os.Remove(path), sandbox.WithHint(
			sandbox.Errorf(sandbox.Invalid, "the registry sent the digest sha256:%s instead of %s", got, b.hash),
			"try again; if the error stays, the registry is broken, or the connection to it is not safe"))
	}
	if err := f.Sync(); err != nil {
		return explainWrite(err)
	}
	return os.Rename(path, s.blobPath(b.hash))
}

// A part is a blob that is being fetched.
type part struct {
	blobFetch
	f    *os.File
	have int64
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
}

// resume hashes the bytes that are present, because the digest covers all bytes.
func (p *part) resume() error {
	p.sum = sha256.New()
	n, err := io.Copy(p.sum, io.LimitReader(p.f, p.size))
	if err != nil {
		return err
	}
	p.have = n
	p.read(n)
	return p.f.Truncate(n)
}

// more fetches the rest of the blob, or as much of it as the registry sends.
func (p *part) more(ctx context.Context, src *source) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stalled := sandbox.Errorf(sandbox.Unavailable, "registry %s: sent nothing for %v", shown(src.repo.RegistryStr()), fetchStall)
	stall := time.AfterFunc(fetchStall, func() { cancel(stalled) })
	defer stall.Stop()
	header := http.Header{}
	if p.have > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-%d", p.have, p.size-1))
	}
	resp, err := src.get(ctx, "blobs", p.hash.String(), header)
	if errors.Is(err, errRange) {
		if err := p.restart(); err != nil {
			return err
		}
		resp, err = src.get(ctx, "blobs", p.hash.String(), nil)
	}
	if err != nil {
		return explainStall(ctx, err)
	}
	defer resp.Body.Close()
	if p.have > 0 && resp.StatusCode != http.StatusPartialContent {
		// The registry ignored the range and sends the blob from its start.
		if err := p.restart(); err != nil {
			return err
		}
	}
	buf := make([]byte, 256<<10)
	for {
		n, err := resp.Body.Read(buf)
		stall.Reset(fetchStall)
		if p.have+int64(n) > p.size {
			return sandbox.Errorf(sandbox.Invalid, "%s is longer than its manifest says", p.hash)
		}
		if n > 0 {
			if _, err := p.f.WriteAt(buf[:n], p.have); err != nil {
				return explainWrite(err)
			}
			_, _ = p.sum.Write(buf[:n])
			p.have += int64(n)
			p.read(int64(n))
		}
		switch {
		case p.have == p.size:
			return nil
		case err == io.EOF:
			return sandbox.Errorf(sandbox.Unavailable, "registry %s: %s broke off after %d of %d bytes",
				shown(src.repo.RegistryStr()), p.hash, p.have, p.size)
		case err != nil:
			return explainStall(ctx, explainRegistry(err, src.ref))
		}
	}
}

// restart discards the bytes that are present.
func (p *part) restart() error {
	if err := p.f.Truncate(0); err != nil {
		return err
	}
	p.read(-p.have)
	p.have, p.sum = 0, sha256.New()
	return nil
}

func explainStall(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && ctx.Err() != nil {
		return cause
	}
	return err
}

// keep adds a small blob to the store.
func (s *Store) keep(h v1.Hash, data []byte) error {
	if fi, err := os.Stat(s.blobPath(h)); err == nil && fi.Size() == int64(len(data)) {
		return nil
	} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return explainWrite(atomicfile.ReplaceDurably(s.blobPath(h), data, 0o600))
}
