//go:build !nogvisor

package app

import (
	"bytes"
	"compress/gzip"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const imageCache = "../../.cache/images"

// debianArchive makes an archive of a Debian of some 190 MB, as docker save
// does, and returns its path and its one layer.
func debianArchive(b *testing.B) (archive string, layer []byte) {
	b.Helper()
	layer = imagetest.Debian(b, imageCache)
	archive = filepath.Join(b.TempDir(), "debian.tar")
	imagetest.Save(b, archive, "debian:bench", imagetest.Image(b, imagetest.Config{}, layer))
	return archive, layer
}

// BenchmarkImageCreate makes sandboxes of an image that is here and, in turn,
// of the image host. It is asked to be within 20 ms of that.
func BenchmarkImageCreate(b *testing.B) {
	archive, _ := debianArchive(b)
	sys := benchSystem(b)
	if _, err := sys.LoadImages(b.Context(), archive, nil, "", nil); err != nil {
		b.Fatal(err)
	}
	create := func(ref string) time.Duration {
		began := time.Now()
		box, err := sys.Engine.Create(b.Context(), sandbox.Local, sandbox.CreateRequest{Image: ref})
		took := time.Since(began)
		if err != nil {
			b.Fatal(err)
		}
		if err := sys.Engine.Stop(b.Context(), sandbox.Local, box.ID); err != nil {
			b.Fatal(err)
		}
		return took
	}
	create("debian:bench")
	create(sandbox.ImageHost)
	var ours, host series
	for b.Loop() {
		ours = append(ours, create("debian:bench"))
		host = append(host, create(sandbox.ImageHost))
	}
	report(b, []string{"image", "host"}, ours, host)
}

// BenchmarkImageUnpack makes the root file system of an image's compressed layer
// and, in turn, has tar unpack the same layer. It is asked to be half as fast.
func BenchmarkImageUnpack(b *testing.B) {
	archive, layer := debianArchive(b)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, err := z.Write(layer)
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		b.Fatal(err)
	}
	file := filepath.Join(b.TempDir(), "layer.tar.gz")
	if err := os.WriteFile(file, packed.Bytes(), 0o600); err != nil {
		b.Fatal(err)
	}
	dir := filepath.Join(b.TempDir(), "images")
	s, err := image.New(image.Options{Dir: dir, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := s.Load(b.Context(), archive, image.LoadOptions{}); err != nil {
		b.Fatal(err)
	}
	var ours, theirs series
	for b.Loop() {
		roots, err := filepath.Glob(filepath.Join(dir, "roots", "*.erofs"))
		if err != nil || len(roots) != 1 {
			b.Fatalf("roots: %q, %v", roots, err)
		}
		if err := os.Remove(roots[0]); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		r, err := s.Root(b.Context(), "debian:bench")
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Since(began))
		r.Close()

		to, err := os.MkdirTemp(b.TempDir(), "")
		if err != nil {
			b.Fatal(err)
		}
		began = time.Now()
		if out, err := exec.CommandContext(b.Context(), "tar", "-xzf", file, "-C", to, "--exclude=./dev/*").CombinedOutput(); err != nil {
			b.Fatalf("tar: %v\n%s", err, out)
		}
		theirs = append(theirs, time.Since(began))
		if err := os.RemoveAll(to); err != nil {
			b.Fatal(err)
		}
	}
	report(b, []string{"unpack", "tar"}, ours, theirs)
}
