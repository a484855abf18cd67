package engine

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// storeWorld is a driver whose images are those of a real store.
type storeWorld struct {
	*imageWorld
	images *image.Store
}

func (d storeWorld) ImageName(ref string) (string, error) { return image.Name(ref) }
func (d storeWorld) PullImage(ctx context.Context, o driver.ImagePull) (sandbox.Image, error) {
	return d.images.Pull(ctx, o.Ref, image.PullOptions{Missing: o.Missing, Anywhere: o.Anywhere, Progress: o.Progress})
}
func (d storeWorld) Images(ctx context.Context) ([]sandbox.Image, error) { return d.images.List(ctx) }
func (d storeWorld) Image(ctx context.Context, ref string) (sandbox.Image, error) {
	return d.images.Image(ctx, ref)
}

// openStoreWorld returns an engine whose principals may have images from any
// registry, or those that are listed.
func openStoreWorld(t *testing.T, logs *bytes.Buffer, registries ...string) *Engine {
	t.Helper()
	images, err := image.New(image.Options{Dir: filepath.Join(t.TempDir(), "images"), Registries: registries})
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld()
	return openWorld(t, w, t.TempDir(), func(o *Options) {
		o.Driver, o.Log = storeWorld{newImageWorld(w), images}, slog.New(slog.NewTextHandler(logs, nil))
	})
}

// TestRegistryOracle has a principal name registries in order to learn what this
// machine reaches: all answers are the same, and nothing inside is asked.
func TestRegistryOracle(t *testing.T) {
	var asked atomic.Int64
	service := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer service.Close()
	reg := imagetest.New(t)
	reg.Push(t, "x:1", imagetest.Image(t, imagetest.Config{}))
	pushed := reg.Asked("")
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()

	var logs bytes.Buffer
	e := openStoreWorld(t, &logs)
	const ref = "/x:1"
	hosts := map[string]string{
		"closed port":      closed.Addr().String(),
		"service":          service.Listener.Addr().String(),
		"registry":         reg.Host,
		"name":             "localhost:" + strings.Split(reg.Host, ":")[1],
		"no such name":     "registry.invalid",
		"private address":  "10.1.2.3:5000",
		"metadata service": "169.254.169.254",
	}
	for _, p := range []sandbox.Principal{alice, sandbox.Local} { // the latter by MCP
		for name, host := range hosts {
			logs.Reset()
			req := sandbox.CreateRequest{Image: host + ref}
			_, err := e.Create(t.Context(), p, req)
			text := strings.ReplaceAll(err.Error(), host, "HOST")
			const want = `create sandbox: image: "HOST/x:1" is not here, and no registry gave it to this server`
			if text != want || !errors.Is(err, sandbox.NotFound) || sandbox.HintOf(err) != registryHint {
				t.Errorf("%s: %v (%s; hint %q)", name, err, sandbox.KindOf(err), sandbox.HintOf(err))
			}
			if !strings.Contains(logs.String(), host) || !strings.Contains(logs.String(), "error=") {
				t.Errorf("%s: the log does not say why: %q", name, logs.String())
			}
		}
	}
	if n := asked.Load() + int64(reg.Asked("")-pushed); n > 0 {
		t.Errorf("services inside were asked %d times", n)
	}

	// The operator at the command line asks any registry, and is told why it fails.
	e.opts.CommandLine = true
	e.images = e.newImages()
	if _, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Image: hosts["closed port"] + ref}); !errors.Is(err, sandbox.Unavailable) || !strings.Contains(err.Error(), "refused") {
		t.Errorf("the operator is told %v", err)
	}
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Image: hosts["service"] + ref}); !errors.Is(err, sandbox.NotFound) || asked.Load() > 0 {
		t.Errorf("a principal beside the operator: %v", err)
	}
	if _, err := e.Create(t.Context(), sandbox.Local, sandbox.CreateRequest{Image: reg.Host + ref}); err != nil {
		t.Errorf("the operator: %v", err)
	}
	// What the operator lists is for all. What is not listed fails as above.
	e = openStoreWorld(t, &logs, reg.Host)
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Image: reg.Host + ref}); err != nil {
		t.Errorf("a listed registry: %v", err)
	}
	for _, host := range []string{"docker.io", hosts["closed port"]} {
		_, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Image: host + ref})
		if !errors.Is(err, sandbox.NotFound) || sandbox.HintOf(err) != registryHint {
			t.Errorf("%s is not listed: %v (hint %q)", host, err, sandbox.HintOf(err))
		}
	}
	// Nor does a listed registry say whether it has an image, or is there.
	if _, err := e.Create(t.Context(), alice, sandbox.CreateRequest{Image: reg.Host + "/none:1"}); !errors.Is(err, sandbox.NotFound) || sandbox.HintOf(err) != registryHint {
		t.Errorf("no such image: %v (hint %q)", err, sandbox.HintOf(err))
	}
}

// registryHint is the hint for every failure of a registry.
const registryHint = "check the name and the tag; the server's log tells the operator why, and images.registries allows registries without a public address"
