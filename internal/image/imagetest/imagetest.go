// Package imagetest makes OCI images for tests, and a local registry that serves
// them. No test uses a remote registry.
//
// Only tests import it.
package imagetest

import (
	"archive/tar"
	"bytes"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Config is an image's configuration for its programs.
type Config = v1.Config

// A Registry is a registry on this machine, for one test.
type Registry struct {
	// Host is its address, for use in references.
	Host string

	mu    sync.Mutex
	fault func(http.Handler) http.Handler
	asked []string
}

// New starts a registry, which stops at the end of the test.
func New(t testing.TB) *Registry {
	t.Helper()
	r := &Registry{}
	plain := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		h := plain
		if r.fault != nil {
			h = r.fault(plain)
		}
		r.asked = append(r.asked, req.Method+" "+req.URL.Path)
		r.mu.Unlock()
		h.ServeHTTP(w, req)
	}))
	t.Cleanup(s.Close)
	r.Host = strings.TrimPrefix(s.URL, "http://")
	return r
}

// Fault installs a handler between clients and the registry; nil removes it.
func (r *Registry) Fault(f func(http.Handler) http.Handler) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = f
}

// Asked returns the number of requests whose method and path begin with prefix.
func (r *Registry) Asked(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, a := range r.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

// Push adds an image to the registry and returns its reference.
func (r *Registry) Push(t testing.TB, repository string, i v1.Image) string {
	t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, i); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// PushIndex adds an index to the registry and returns its reference.
func (r *Registry) PushIndex(t testing.TB, repository string, i v1.ImageIndex) string {
	t.Helper()
	ref, err := name.ParseReference(r.Host + "/" + repository)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.WriteIndex(ref, i); err != nil {
		t.Fatal(err)
	}
	return ref.Name()
}

// PushFor pushes an index with one image for the given architecture.
func (r *Registry) PushFor(t testing.TB, repository, architecture string, layers ...[]byte) string {
	t.Helper()
	return r.PushIndex(t, repository, mutate.AppendManifests(empty.Index, mutate.IndexAddendum{
		Add:        ImageFor(t, architecture, Config{}, layers...),
		Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: architecture}},
	}))
}

// Image makes an image for this machine from layers, which are uncompressed tar
// archives.
func Image(t testing.TB, c v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	return ImageFor(t, runtime.GOARCH, c, layers...)
}

// ImageFor makes an image for the given architecture.
func ImageFor(t testing.TB, architecture string, c v1.Config, layers ...[]byte) v1.Image {
	t.Helper()
	i, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{OS: "linux", Architecture: architecture, Config: c})
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range layers {
		l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
		if err != nil {
			t.Fatal(err)
		}
		if i, err = mutate.AppendLayers(i, l); err != nil {
			t.Fatal(err)
		}
	}
	return i
}

// Save writes an archive in the format of docker save.
func Save(t testing.TB, path, as string, i v1.Image) {
	t.Helper()
	tag, err := name.NewTag(as)
	if err != nil {
		t.Fatal(err)
	}
	if err := tarball.WriteToFile(path, tag, i); err != nil {
		t.Fatal(err)
	}
}

// A File is a file of a layer. If its name ends in a slash, it is a directory. If
// it has a Link, it is a symbolic link.
type File struct {
	Name, Content, Link string
	Mode                int64 // 0644, 0755 for a directory, if zero
	UID                 int
}

// Layer makes a layer.
func Layer(t testing.TB, files ...File) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, f := range files {
		h := tar.Header{Name: f.Name, Mode: f.Mode, Uid: f.UID, Gid: f.UID, Typeflag: tar.TypeReg, Size: int64(len(f.Content))}
		switch {
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
			if h.Mode == 0 {
				h.Mode = 0o755
			}
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if h.Mode == 0 {
			h.Mode = 0o644
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.Content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// Busybox makes a layer for an empty base image, with only a static busybox under
// the names of its programs. If this machine has no busybox, the test is skipped,
// or fails if GLOVEBOX_REQUIRE has images.
func Busybox(t testing.TB) []byte {
	t.Helper()
	var out []byte
	for _, path := range []string{"/bin/busybox", "/usr/bin/busybox"} {
		var err error
		if out, err = os.ReadFile(path); err == nil {
			break
		}
	}
	if len(out) == 0 {
		Missing(t, "busybox is not here: apt-get install busybox-static")
	}
	files := []File{{Name: "bin/"}, {Name: "bin/busybox", Content: string(out), Mode: 0o755}}
	names, err := exec.CommandContext(t.Context(), "busybox", "--list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for n := range strings.FieldsSeq(string(names)) {
		if n != "busybox" {
			files = append(files, File{Name: "bin/" + n, Link: "busybox"})
		}
	}
	return Layer(t, files...)
}

// DebianEnv names a file with the result of Debian, for ordinary users, who
// cannot make it.
const DebianEnv = "GLOVEBOX_TEST_DEBIAN"

// Debian returns a layer with a small Debian with Python, made from Debian's
// packages. It is cached in the directory cache. If it cannot be made here, the
// test is skipped, or fails if GLOVEBOX_REQUIRE has images.
func Debian(t testing.TB, cache string) []byte {
	t.Helper()
	path := os.Getenv(DebianEnv)
	if path == "" {
		path = filepath.Join(cache, "debian-bookworm-python3.tar")
	}
	if data, err := os.ReadFile(path); err == nil {
		return data
	}
	if _, err := exec.LookPath("mmdebstrap"); err != nil || os.Geteuid() != 0 {
		Missing(t, "a Debian cannot be made here: that takes root and apt-get install mmdebstrap")
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase",
		"--include=python3,ca-certificates", "bookworm", path+".new.tar")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make a Debian: %v\n%s", err, out)
	}
	if err := os.Rename(path+".new.tar", path); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Missing skips a test for a missing component, or fails it if GLOVEBOX_REQUIRE
// has images.
func Missing(t testing.TB, why string) {
	t.Helper()
	if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "images") {
		t.Fatal("GLOVEBOX_REQUIRE has images, but " + why)
	}
	t.Skip(why)
}
