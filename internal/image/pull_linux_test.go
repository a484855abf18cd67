package image

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func newStore(t testing.TB, adjust func(*Options)) *Store {
	t.Helper()
	opts := Options{Dir: filepath.Join(t.TempDir(), "images")}
	if adjust != nil {
		adjust(&opts)
	}
	s, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// large is content that no compression makes small.
func large(t testing.TB, size int) string {
	t.Helper()
	b := make([]byte, size)
	if _, err := rand.Read(b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func root(t testing.TB, s *Store, ref string) map[string]string {
	t.Helper()
	r, err := s.Root(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	return readImage(t, r.Path)
}

// left lists what a store has.
func left(t testing.TB, s *Store) []string {
	t.Helper()
	var names []string
	for _, dir := range []string{blobsDir, partialDir, rootsDir} {
		found, err := filepath.Glob(s.path(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, found...)
	}
	return names
}

func TestPull(t *testing.T) {
	reg := imagetest.New(t)
	config := v1.Config{
		Env: []string{"A=b"}, User: "app", WorkingDir: "/app", Entrypoint: []string{"/e"}, Cmd: []string{"c"},
		Labels: map[string]string{"sandbox.runner": "true"}, ExposedPorts: map[string]struct{}{"80/tcp": {}},
	}
	ref := reg.Push(t, "team/app:1", imagetest.Image(t, config,
		imagetest.Layer(t, imagetest.File{Name: "a", Content: "one"}, imagetest.File{Name: "b", Content: "one"}),
		imagetest.Layer(t, imagetest.File{Name: "b", Content: "two"}, imagetest.File{Name: ".wh.a"})))
	s := newStore(t, nil)
	var steps []string
	i, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true, Progress: func(p sandbox.ImageProgress) {
		if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	want := sandbox.ImageConfig{
		Env: []string{"A=b"}, User: "app", WorkDir: "/app", Entrypoint: []string{"/e"}, Cmd: []string{"c"},
		Labels: map[string]string{"sandbox.runner": "true"}, Ports: []string{"80/tcp"},
	}
	if d := cmp.Diff(want, i.Config); d != "" {
		t.Errorf("config: -want +got\n%s", d)
	}
	if d := cmp.Diff([]string{"resolve", "fetch", "unpack"}, steps); d != "" {
		t.Errorf("steps: -want +got\n%s", d)
	}
	got := root(t, s, ref)
	if got["b"] != "two" || got["a"] != "" {
		t.Errorf("root: %q", got)
	}
	// It is known by its digest and by its ID too, whole or in part, and is not
	// fetched again.
	before := reg.Asked("GET")
	for _, name := range []string{ref, i.Digest, i.ID, i.ID[7:19], reg.Host + "/team/app@" + i.Digest} {
		if name == reg.Host+"/team/app@"+i.Digest {
			continue // another name, which is fetched
		}
		if _, err := s.Pull(t.Context(), name, PullOptions{Anywhere: true, Missing: true}); err != nil {
			t.Errorf("Pull of %s, which is here: %v", name, err)
		}
	}
	if after := reg.Asked("GET"); after != before {
		t.Errorf("%d requests for what is here", after-before)
	}
	// By digest it is another name for the same files.
	if _, err := s.Pull(t.Context(), reg.Host+"/team/app@"+i.Digest, PullOptions{Anywhere: true}); err != nil {
		t.Error(err)
	}
	if n := reg.Asked("GET /v2/team/app/blobs/"); n != 3 {
		t.Errorf("%d blobs fetched; there are 3", n)
	}
	// A tag that moves moves here too, when asked.
	reg.Push(t, "team/app:1", imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "new", Content: "n"})))
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if got := root(t, s, ref); got["new"] != "n" || got["b"] != "" {
		t.Errorf("root after the tag moved: %q", got)
	}
}

func TestPlatforms(t *testing.T) {
	reg := imagetest.New(t)
	mine, other := platform(), v1.Platform{OS: "linux", Architecture: "s390x"}
	layer := imagetest.Layer(t, imagetest.File{Name: "a", Content: "mine"})
	add := func(x v1.ImageIndex, p v1.Platform, i v1.Image) v1.ImageIndex {
		return mutate.AppendManifests(x, mutate.IndexAddendum{Add: i, Descriptor: v1.Descriptor{Platform: &p}})
	}
	both := add(add(empty.Index, other, imagetest.ImageFor(t, "s390x", v1.Config{})), mine, imagetest.Image(t, v1.Config{}, layer))
	s := newStore(t, nil)
	ref := reg.PushIndex(t, "both", both)
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if got := root(t, s, ref); got["a"] != "mine" {
		t.Errorf("root: %q", got)
	}
	for name, ref := range map[string]string{
		"Index": reg.PushIndex(t, "other", add(empty.Index, other, imagetest.ImageFor(t, "s390x", v1.Config{}))),
		"Image": reg.Push(t, "single", imagetest.ImageFor(t, "s390x", v1.Config{}, layer)),
	} {
		_, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true})
		if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(err.Error(), "linux/s390x") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// broken changes what a registry answers to requests whose path has a part.
func broken(part string, answer func(w http.ResponseWriter, r *http.Request, next http.Handler)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, part) {
				answer(w, r, next)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

func status(code int) func(http.ResponseWriter, *http.Request, http.Handler) {
	return func(w http.ResponseWriter, _ *http.Request, _ http.Handler) { w.WriteHeader(code) }
}

func TestBadRegistries(t *testing.T) {
	reg := imagetest.New(t)
	layer := imagetest.Layer(t, imagetest.File{Name: "a", Content: large(t, 100_000)})
	i := imagetest.Image(t, v1.Config{}, layer)
	ref := reg.Push(t, "x:1", i)
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	h, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, ref string
		fault     func(http.Handler) http.Handler
		kind      sandbox.Kind
		text      string
	}{
		{"Name", "Not A Reference", nil, sandbox.Invalid, "not a reference"},
		{"Unknown", "127.0.0.1:1/x", nil, sandbox.Unavailable, "registry 127.0.0.1:1"},
		{"NoRepository", reg.Host + "/no", nil, sandbox.NotFound, "has no"},
		{"NoTag", reg.Host + "/x:2", nil, sandbox.NotFound, "has no"},
		{"Denied", ref, broken("/manifests/", status(http.StatusForbidden)), sandbox.NotFound, "denies"},
		{"Unauthorized", ref, broken("/manifests/", status(http.StatusUnauthorized)), sandbox.NotFound, "denies"},
		{"TooMany", ref, broken("/blobs/", status(http.StatusTooManyRequests)), sandbox.Exhausted, "limited the rate"},
		{"Fails", ref, broken("/manifests/", status(http.StatusBadGateway)), sandbox.Unavailable, "502"},
		{"ManifestIsGarbage", ref, broken("/manifests/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
			fmt.Fprint(w, `{"layers": 3}`)
		}), sandbox.Invalid, "not readable"},
		{"ManifestIsEndless", ref, broken("/manifests/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			_, _ = io.Copy(w, io.LimitReader(zeros{}, 5<<20))
		}), sandbox.Invalid, "larger than"},
		{"NoImage", ref, broken("/manifests/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			w.Header().Set("Content-Type", "text/html")
			fmt.Fprint(w, "<h1>Welcome</h1>")
		}), sandbox.Unsupported, "not an image"},
		{"CorruptLayer", ref, broken(h.Hex, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			b := rec.Body.Bytes()
			b[len(b)/2] ^= 1
			_, _ = w.Write(b)
		}), sandbox.Invalid, "instead of"},
		{"LongLayer", ref, broken(h.Hex, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
			rec := httptest.NewRecorder()
			next.ServeHTTP(rec, r)
			_, _ = w.Write(append(rec.Body.Bytes(), 'x'))
		}), sandbox.Invalid, "longer than"},
		{"MissingLayer", ref, broken(h.Hex, status(http.StatusNotFound)), sandbox.NotFound, "has no"},
		{"WrongDigest", reg.Host + "/x@" + h.String(), broken("/manifests/", func(w http.ResponseWriter, _ *http.Request, _ http.Handler) {
			fmt.Fprint(w, "{}")
		}), sandbox.Invalid, "sent a manifest with the digest"},
		{"Redirect", ref, broken("/manifests/", func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
			http.Redirect(w, r, "http://192.0.2.1/secret", http.StatusFound)
		}), sandbox.Unavailable, "HTTPS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			reg.Fault(c.fault)
			defer reg.Fault(nil)
			s := newStore(t, nil)
			_, err := s.Pull(t.Context(), c.ref, PullOptions{Anywhere: true})
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || len(err.Error()) > 500 {
				t.Fatalf("%v: want one of kind %s about %q", err, c.kind, c.text)
			}
			if list, err := s.List(t.Context()); err != nil || len(list) > 0 {
				t.Errorf("images: %v, %v", list, err)
			}
			if c.kind == sandbox.Invalid || c.kind == sandbox.Exhausted {
				if _, err := os.Stat(s.path(partialDir, h.Hex)); err == nil {
					t.Error("what is broken was kept to be continued")
				}
			}
			reg.Fault(nil)
			if c.ref == ref {
				if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
					t.Errorf("and when it works again: %v", err)
				}
			}
		})
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }

func TestAllowedRegistries(t *testing.T) {
	reg := imagetest.New(t)
	ref := reg.Push(t, "x", imagetest.Image(t, v1.Config{}))
	s := newStore(t, func(o *Options) { o.Registries = []string{"docker.io", "ghcr.io"} })
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); !errors.Is(err, sandbox.Unavailable) || reg.Asked("") != 0+reg.Asked("POST")+reg.Asked("PUT")+reg.Asked("HEAD")+reg.Asked("PATCH")+1 {
		t.Errorf("%v", err)
	}
	s = newStore(t, func(o *Options) { o.Registries = []string{"docker.io", reg.Host} })
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Error(err)
	}
}

// TestMirrors shows that a mirror is asked first, and the registry if it fails.
func TestMirrors(t *testing.T) {
	reg, mirror := imagetest.New(t), imagetest.New(t)
	ref := reg.Push(t, "team/x:1", imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "registry"})))
	mirror.Push(t, "cache/team/x:1", imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "mirror"})))
	with := func(o *Options) {
		o.Mirrors = map[string][]string{reg.Host: {"127.0.0.1:1", mirror.Host + "/cache"}}
	}
	s := newStore(t, with)
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if got := root(t, s, ref); got["a"] != "mirror" {
		t.Errorf("%q", got)
	}
	mirror.Fault(broken("/manifests/", status(http.StatusNotFound)))
	s = newStore(t, with)
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if got := root(t, s, ref); got["a"] != "registry" {
		t.Errorf("%q", got)
	}
}

// TestCredentials shows that a registry that wants to know who asks is told.
func TestCredentials(t *testing.T) {
	reg := imagetest.New(t)
	ref := reg.Push(t, "private/x", imagetest.Image(t, v1.Config{}))
	reg.Fault(func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "secret" {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	dir := t.TempDir()
	config := fmt.Sprintf(`{"auths": {%q: {"username": "me", "password": "secret"}}}`, reg.Host)
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	t.Setenv("REGISTRY_AUTH_FILE", filepath.Join(dir, "none"))
	if _, err := newStore(t, nil).Pull(t.Context(), ref, PullOptions{Anywhere: true}); !errors.Is(err, sandbox.NotFound) || !strings.Contains(sandbox.HintOf(err), "docker login") {
		t.Errorf("without credentials: %v", err)
	}
	t.Setenv("DOCKER_CONFIG", dir)
	if _, err := newStore(t, func(o *Options) { o.Keychain = authn.DefaultKeychain }).Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Errorf("with credentials: %v", err)
	}
}

// TestResume shows that a fetch that breaks off goes on where it was, in the same
// process and in the next.
func TestResume(t *testing.T) {
	reg := imagetest.New(t)
	i := imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: large(t, 2<<20)}))
	ref := reg.Push(t, "x", i)
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	h, err := layers[0].Digest()
	if err != nil {
		t.Fatal(err)
	}
	var ranges []string
	var served atomic.Int64
	const piece = 3 << 18
	reg.Fault(broken(h.Hex, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		ranges = append(ranges, r.Header.Get("Range"))
		next.ServeHTTP(&cutOff{ResponseWriter: w, left: piece, served: &served}, r)
	}))
	s := newStore(t, nil)
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if len(ranges) != 3 || ranges[0] != "" || !strings.HasPrefix(ranges[1], "bytes=") {
		t.Errorf("asked for %q", ranges)
	}
	if size, _ := layers[0].Size(); served.Load() != size {
		t.Errorf("%d bytes were sent of a layer of %d", served.Load(), size)
	}

	// Another process begins where one that was killed ended.
	ranges = nil
	served.Store(0)
	s = newStore(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	_, err = s.Pull(ctx, ref, PullOptions{Anywhere: true, Progress: func(p sandbox.ImageProgress) {
		if p.Done > 1<<19 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("Pull that was cancelled: %v", err)
	}
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if last := ranges[len(ranges)-1]; !strings.HasPrefix(last, "bytes=") || last == "bytes=0-" {
		t.Errorf("asked for %q", ranges)
	}
}

// cutOff sends so much of an answer, and then breaks off.
type cutOff struct {
	http.ResponseWriter
	left   int
	served *atomic.Int64
}

func (c *cutOff) Write(b []byte) (int, error) {
	if c.left == 0 {
		panic(http.ErrAbortHandler)
	}
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	c.left -= n
	c.served.Add(int64(n))
	if err == nil && n < len(b) {
		_ = http.NewResponseController(c.ResponseWriter).Flush()
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestOnce shows that what several want at once is fetched once.
func TestOnce(t *testing.T) {
	reg := imagetest.New(t)
	ref := reg.Push(t, "x", imagetest.Image(t, v1.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: large(t, 1<<20)})))
	dir := filepath.Join(t.TempDir(), "images")
	var pulls sync.WaitGroup
	for range 8 {
		pulls.Go(func() {
			s := newStore(t, func(o *Options) { o.Dir = dir }) // as another process has it
			if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true, Missing: true}); err != nil {
				t.Error(err)
			}
		})
	}
	pulls.Wait()
	if n := reg.Asked("GET /v2/x/blobs/"); n != 2 {
		t.Errorf("%d blobs fetched; there are 2", n)
	}
}

const killedEnv = "GLOVEBOX_TEST_KILLED_PULL"

// TestKilledPull kills a process that pulls, at several moments, and shows that the
// next goes on and that nothing is broken.
func TestKilledPull(t *testing.T) {
	if dir := os.Getenv(killedEnv); dir != "" {
		s, err := New(Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.Pull(t.Context(), os.Getenv(killedEnv+"_REF"), PullOptions{Anywhere: true})
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	reg := imagetest.New(t)
	var layers [][]byte
	for n := range 4 {
		layers = append(layers, imagetest.Layer(t, imagetest.File{Name: fmt.Sprint("f", n), Content: large(t, 1<<20)}))
	}
	ref := reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layers...))
	s := newStore(t, nil)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for n := range 5 {
		cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestKilledPull$")
		cmd.Env = append(os.Environ(), killedEnv+"="+s.opts.Dir, killedEnv+"_REF="+ref)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(n*20) * time.Millisecond) // some moment; none decides
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if _, err := s.List(t.Context()); err != nil {
			t.Fatalf("after the kill: %v", err)
		}
	}
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	if got := root(t, s, ref); len(got["f3"]) != 1<<20 {
		t.Error("the image is not whole")
	}
	if _, _, err := s.Prune(t.Context(), PruneOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	if l := left(t, s); len(l) > 0 {
		t.Errorf("left: %q", l)
	}
}

// TestTooLarge shows that what is above the limits leaves nothing.
func TestTooLarge(t *testing.T) {
	reg := imagetest.New(t)
	bomb := func() []byte {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		_, _ = io.Copy(z, io.LimitReader(zeros{}, 8<<20))
		z.Close()
		return b.Bytes()
	}
	if _, err := decompressAll(bomb(), 200); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a bomb: %v", err)
	}
	for name, c := range map[string]struct {
		limits Limits
		layer  []byte
	}{
		"Bytes": {Limits{Bytes: 1 << 20}, imagetest.Layer(t, imagetest.File{Name: "a", Content: strings.Repeat("x", 2<<20)})},
		"Files": {Limits{Files: 3}, imagetest.Layer(t, imagetest.File{Name: "a/b/c/d"})},
	} {
		ref := reg.Push(t, strings.ToLower(name), imagetest.Image(t, v1.Config{}, c.layer))
		s := newStore(t, func(o *Options) { o.Limits = c.limits })
		if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); !errors.Is(err, sandbox.Exhausted) || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		if l := left(t, s); len(l) > 0 {
			t.Errorf("%s: left: %q", name, l)
		}
	}
}

func decompressAll(data []byte, ratio int64) (int64, error) {
	r, err := decompress(bytes.NewReader(data), ratio)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	r.(*expander).free = 1 << 20
	return io.Copy(io.Discard, r)
}
