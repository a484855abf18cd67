package docker_test

import (
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestDockerPulls has the engine pull from a registry on this machine. Docker
// takes one there without a certificate; Podman would have to be told.
func TestDockerPulls(t *testing.T) {
	need(t, docker.Docker, dockerEnv)
	f := &faults{engine: docker.Docker, socket: strings.TrimPrefix(os.Getenv(dockerEnv), "unix://")}
	f.spec = harness(docker.Docker, dockerEnv).Spec
	t.Run("Shared", f.pullShared)
	t.Run("Pinned", f.pullPinned)
	t.Run("GivenUp", f.pullGivenUp)
	t.Run("Refused", f.pullRefused)
	t.Run("NotAllowed", f.pullNotAllowed)
}

// forget removes an image when the test ends.
func (f *faults) forget(t *testing.T, refs ...string) {
	c := f.client(t)
	t.Cleanup(func() {
		for _, ref := range refs {
			_, _ = c.ImageRemove(context.Background(), ref, client.ImageRemoveOptions{Force: true})
		}
	})
}

// fresh pushes an image whose last layer the engine cannot have, large enough
// for it to say how far it is, and returns the path of that layer, too.
func fresh(t *testing.T, r *imagetest.Registry, repository string, below ...[]byte) (ref, layer string) {
	content := make([]byte, 4<<20)
	rand.Read(content)
	i := imagetest.Image(t, imagetest.Config{}, append(below, imagetest.Layer(t, imagetest.File{Name: "made", Content: string(content)}))...)
	layers, err := i.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[len(layers)-1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return r.Push(t, repository+":1", i), "/v2/" + repository + "/blobs/" + digest.String()
}

// held keeps blobs back until release is called.
func held() (fault func(http.Handler) http.Handler, release func()) {
	open := make(chan struct{})
	fault = func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.Contains(r.URL.Path, "/blobs/") {
				select {
				case <-open:
				case <-r.Context().Done():
					return
				}
			}
			h.ServeHTTP(w, r)
		})
	}
	return fault, sync.OnceFunc(func() { close(open) })
}

// pullShared has several ask for an image at once, one for a box of it.
func (f *faults) pullShared(t *testing.T) {
	r := imagetest.New(t)
	ref, layer := fresh(t, r, "shared", imagetest.Busybox(t))
	f.forget(t, ref)
	fault, release := held()
	r.Fault(fault)
	t.Cleanup(release)
	d := f.open(t, "unix://"+f.socket)

	const callers = 3
	var wg sync.WaitGroup
	steps := make([]map[string]sandbox.ImageProgress, callers)
	for i := range callers {
		steps[i] = map[string]sandbox.ImageProgress{}
		wg.Go(func() {
			_, err := d.PullImage(t.Context(), driver.ImagePull{
				Ref: ref, Missing: true, Anywhere: true, Progress: func(now sandbox.ImageProgress) { steps[i][now.Step] = now },
			})
			if err != nil {
				t.Errorf("caller %d: %v", i, err)
			}
		})
	}
	spec := f.spec()
	spec.Image = ref
	wg.Go(func() {
		_, err := d.PullImage(t.Context(), driver.ImagePull{Ref: ref, Missing: true, Anywhere: true})
		if err != nil {
			t.Errorf("image that is being pulled: %v", err)
			return
		}
		b, err := d.Create(t.Context(), spec)
		if err != nil {
			t.Errorf("box of an image that is being pulled: %v", err)
			return
		}
		if err := b.Destroy(t.Context()); err != nil {
			t.Error(err)
		}
	})
	for deadline := time.Now().Add(patience); r.Asked("GET "+layer) == 0 || docker.Pulling(d, ref) <= callers; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d wait for the image, for which the engine asked %d times", docker.Pulling(d, ref), r.Asked("GET "+layer))
		}
	}
	release()
	wg.Wait()
	if n := r.Asked("GET " + layer); n != 1 {
		t.Errorf("the layer was fetched %d times for %d callers", n, callers+1)
	}
	for i, seen := range steps {
		if now := seen["fetch"]; now.Total == 0 || now.Done != now.Total {
			t.Errorf("caller %d was told %+v", i, seen)
		}
	}
}

// pullPinned pulls by digest, and is given something else by a registry.
func (f *faults) pullPinned(t *testing.T) {
	r := imagetest.New(t)
	i := imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t))
	digest, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	r.Push(t, "pinned:1", i)
	ref := r.Host + "/pinned@" + digest.String()
	f.forget(t, ref)
	d := f.open(t, "unix://"+f.socket)
	if _, err := d.PullImage(t.Context(), driver.ImagePull{Ref: ref, Missing: true, Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	spec := f.spec()
	spec.Image = ref
	if out := drivertest.Launch(t, d, spec).MustSh(t, "echo pinned"); out != "pinned\n" {
		t.Errorf("in a box of a pinned image: %q", out)
	}
	if got, err := d.Image(t.Context(), ref); err != nil || got.Digest != digest.String() {
		t.Errorf("Image: %+v, %v; want digest %s", got, err, digest)
	}
	other := r.Push(t, "pinned:2", imagetest.Image(t, imagetest.Config{User: "other"}, imagetest.Busybox(t)))
	_, tag, _ := strings.Cut(strings.TrimPrefix(other, r.Host), ":")
	r.Fault(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if before, _, ok := strings.Cut(req.URL.Path, "/manifests/"); ok {
				req.URL.Path = before + "/manifests/" + tag
			}
			h.ServeHTTP(w, req)
		})
	})
	wrong := r.Host + "/pinned@sha256:" + strings.Repeat("1", 64)
	f.forget(t, wrong)
	if got, err := d.PullImage(t.Context(), driver.ImagePull{Ref: wrong, Missing: true, Anywhere: true}); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(sandbox.HintOf(err), "does not have that digest") {
		t.Errorf("a registry gives another image than was pinned: %+v, %v (kind %s, hint %q)", got, err, sandbox.KindOf(err), sandbox.HintOf(err))
	}
}

// pullGivenUp has the only caller leave: the engine is to stop as well.
func (f *faults) pullGivenUp(t *testing.T) {
	r := imagetest.New(t)
	ref, layer := fresh(t, r, "left")
	f.forget(t, ref)
	var underWay atomic.Int64
	r.Fault(func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path == layer {
				underWay.Add(1)
				defer underWay.Add(-1)
				w = &halfWriter{ResponseWriter: w, left: 2 << 20, gone: req.Context().Done(), over: t.Context().Done()}
			}
			h.ServeHTTP(w, req)
		})
	})
	d := f.open(t, "unix://"+f.socket)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := d.PullImage(ctx, driver.ImagePull{Ref: ref, Missing: true, Anywhere: true, Progress: func(now sandbox.ImageProgress) {
		if now.Done > 0 {
			cancel()
		}
	}})
	if ctx.Err() == nil || err == nil {
		t.Errorf("PullImage that is given up: %v", err)
	}
	for deadline := time.Now().Add(patience); underWay.Load() > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the engine goes on with a pull that was given up")
		}
	}
	r.Fault(nil)
	if _, err := d.Image(t.Context(), ref); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("the image of a pull that was given up: %v", err)
	}
	if _, err := d.PullImage(t.Context(), driver.ImagePull{Ref: ref, Missing: true, Anywhere: true}); err != nil {
		t.Errorf("pulled again: %v", err)
	}
}

// A halfWriter sends so much, and then nothing until its client is gone, or the
// test over.
type halfWriter struct {
	http.ResponseWriter
	left       int
	gone, over <-chan struct{}
}

func (w *halfWriter) Write(p []byte) (int, error) {
	if len(p) <= w.left {
		w.left -= len(p)
		return w.ResponseWriter.Write(p)
	}
	n, err := w.ResponseWriter.Write(p[:w.left])
	if err == nil {
		err = http.NewResponseController(w.ResponseWriter).Flush()
	}
	if err != nil {
		return n, err
	}
	select {
	case <-w.gone:
	case <-w.over:
	}
	return n, io.ErrClosedPipe
}

// pullRefused pulls what is not to be had.
func (f *faults) pullRefused(t *testing.T) {
	r := imagetest.New(t)
	d := f.open(t, "unix://"+f.socket)
	index := r.PushFor(t, "many:1", "s390x", imagetest.Busybox(t))
	here := r.Push(t, "here:1", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t)))
	f.forget(t, index, here)
	status := func(code int, body string) func(http.Handler) http.Handler {
		return func(http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if code == http.StatusUnauthorized {
					w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				}
				w.WriteHeader(code)
				_, _ = w.Write([]byte(body))
			})
		}
	}
	for _, tc := range []struct {
		name, ref string
		fault     func(http.Handler) http.Handler
		kind      sandbox.Kind
		hint      string
	}{
		{"no such image", r.Host + "/none:1", nil, sandbox.NotFound, "check the name"},
		{"no such tag", r.Host + "/here:2", nil, sandbox.NotFound, "check the name"},
		{"who is not known", here, status(http.StatusUnauthorized, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`), sandbox.NotFound, "docker login"},
		{"who may not", here, status(http.StatusForbidden, `{"errors":[{"code":"DENIED","message":"requested access to the resource is denied"}]}`), sandbox.NotFound, "docker login"},
		{"a broken registry", here, status(http.StatusInternalServerError, `{}`), sandbox.Unavailable, "try again"},
		{"no registry", "127.0.0.1:1/none:1", nil, sandbox.Unavailable, "glovebox images load"},
		{"no such name", "registry.invalid/none:1", nil, sandbox.Unavailable, "glovebox images load"},
		{"none for this machine", index, nil, sandbox.NotFound, "there is none for"},
		{"too often", here, status(http.StatusTooManyRequests, `{"errors":[{"code":"TOOMANYREQUESTS","message":"slow down"}]}`), sandbox.Exhausted, "wait"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r.Fault(tc.fault)
			_, err := d.PullImage(t.Context(), driver.ImagePull{Ref: tc.ref, Missing: true, Anywhere: true})
			if sandbox.KindOf(err) != tc.kind || !strings.Contains(sandbox.HintOf(err), tc.hint) {
				t.Errorf("%v (kind %s, hint %q), want kind %s and %q", err, sandbox.KindOf(err), sandbox.HintOf(err), tc.kind, tc.hint)
			}
		})
	}
}

// pullNotAllowed pulls from where the operator does not want it.
func (f *faults) pullNotAllowed(t *testing.T) {
	r := imagetest.New(t)
	ref := r.Push(t, "any:1", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t)))
	f.forget(t, ref)
	for _, tc := range []struct {
		allowed []string
		kind    sandbox.Kind
	}{
		{[]string{"docker.io", "ghcr.io"}, sandbox.Unavailable},
		{nil, sandbox.Unavailable},
		{[]string{"docker.io", r.Host}, ""},
	} {
		d, err := docker.New(docker.Options{
			Engine: f.engine, Host: "unix://" + f.socket, StateDir: t.TempDir(), Guest: os.Getenv(guestEnv), Registries: tc.allowed,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		before := r.Asked("")
		for _, missing := range []bool{true, false} {
			if _, err := d.PullImage(t.Context(), driver.ImagePull{Ref: ref, Missing: missing}); sandbox.KindOf(err) != tc.kind {
				t.Errorf("allowed %q, only if missing %t: %v", tc.allowed, missing, err)
			}
		}
		if asked := r.Asked("") - before; (asked == 0) != (tc.kind != "") {
			t.Errorf("allowed %q: the registry was asked %d times", tc.allowed, asked)
		}
	}
}
