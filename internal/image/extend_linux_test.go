package image

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestExtend makes an image of another, and another of nothing.
func TestExtend(t *testing.T) {
	reg := imagetest.New(t)
	base := imagetest.Image(t, imagetest.Config{User: "app", Labels: map[string]string{"a": "b"}}, imagetest.Layer(t, imagetest.File{Name: "old", Content: "old"}, imagetest.File{Name: "gone"}))
	ref := reg.Push(t, "base", base)
	s := newStore(t, nil)
	if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	config := sandbox.ImageConfig{Env: []string{"A=b"}, Entrypoint: []string{"/new"}, WorkDir: "/w", Ports: []string{"80/tcp"}}
	layer := imagetest.Layer(t, imagetest.File{Name: "new", Content: "new"}, imagetest.File{Name: ".wh.gone"})
	i, err := s.Extend(t.Context(), Extension{Base: ref, Layer: bytes.NewReader(layer), Config: config, Name: "made:1", By: "a test"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(config, i.Config); d != "" || !i.Local || i.Name != "made:1" {
		t.Errorf("%+v (-want +got)\n%s", i, d)
	}
	has := root(t, s, "made:1")
	if has["old"] == "" || has["new"] == "" || has["gone"] != "" {
		t.Errorf("it has %v", has)
	}
	// Without a layer it is the same files, and the base may go.
	if _, err := s.Extend(t.Context(), Extension{Base: "made:1", Config: config, Name: "made:2"}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Remove(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(has, root(t, s, "made:2")); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if _, err := s.Extend(t.Context(), Extension{Base: sandbox.ImageScratch, Layer: bytes.NewReader(layer), Name: "made:3"}); err != nil {
		t.Fatal(err)
	}
	if has := root(t, s, "made:3"); has["new"] == "" || has["old"] != "" {
		t.Errorf("an image of nothing has %v", has)
	}
}

// TestExtendRefused shows that what goes wrong leaves nothing.
func TestExtendRefused(t *testing.T) {
	whole := imagetest.Layer(t, imagetest.File{Name: "a", Content: strings.Repeat("x", 10_000)})
	for name, c := range map[string]struct {
		x    Extension
		kind sandbox.Kind
	}{
		"Name":      {Extension{Name: "Not A Name", Layer: bytes.NewReader(whole)}, sandbox.Invalid},
		"Base":      {Extension{Base: "none", Layer: bytes.NewReader(whole)}, sandbox.NotFound},
		"Truncated": {Extension{Layer: bytes.NewReader(whole[:5000])}, sandbox.Invalid},
		"Climbs":    {Extension{Layer: bytes.NewReader(imagetest.Layer(t, imagetest.File{Name: "../x"}))}, sandbox.Invalid},
		"TooLarge":  {Extension{Layer: bytes.NewReader(bytes.Repeat(whole, 10))}, sandbox.Exhausted},
		"Config":    {Extension{Config: sandbox.ImageConfig{User: "a\x00b"}}, sandbox.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, func(o *Options) { o.Limits.Bytes = 50_000 })
			if c.x.Name == "" {
				c.x.Name = "x"
			}
			if c.x.Base == "" {
				c.x.Base = sandbox.ImageScratch
			}
			if i, err := s.Extend(t.Context(), c.x); !errors.Is(err, c.kind) {
				t.Errorf("%+v, %v; want one of kind %s", i, err, c.kind)
			}
			if l := left(t, s); len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}
