package image

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestLoad loads one image in each form that there is.
func TestLoad(t *testing.T) {
	i := imagetest.Image(t, imagetest.Config{Env: []string{"A=b"}}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "1"}),
		imagetest.Layer(t, imagetest.File{Name: "b", Content: "2"}))
	dir := t.TempDir()
	saved := filepath.Join(dir, "saved.tar")
	imagetest.Save(t, saved, "mine:1", i)
	oci := filepath.Join(dir, "oci")
	p, err := layout.Write(oci, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(i, layout.WithAnnotations(map[string]string{annotationName: "docker.io/library/laid:2"})); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		load func(*Store) ([]sandbox.Image, error)
		want string
	}{
		{"Saved", func(s *Store) ([]sandbox.Image, error) { return s.Load(t.Context(), saved, LoadOptions{}) }, "mine:1"},
		{"Stream", func(s *Store) ([]sandbox.Image, error) {
			return s.LoadFrom(t.Context(), strings.NewReader(string(data)), LoadOptions{})
		}, "mine:1"},
		{"Named", func(s *Store) ([]sandbox.Image, error) {
			return s.Load(t.Context(), saved, LoadOptions{Name: "other"})
		}, "other:latest"},
		{"Layout", func(s *Store) ([]sandbox.Image, error) { return s.Load(t.Context(), oci, LoadOptions{}) }, "laid:2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, nil)
			list, err := c.load(s)
			if err != nil || len(list) != 1 || list[0].Name != c.want || !list[0].Local {
				t.Fatalf("%+v, %v", list, err)
			}
			if got := root(t, s, c.want); got["a"] != "1" || got["b"] != "2" {
				t.Errorf("root: %q", got)
			}
			if freed, err := s.Remove(t.Context(), list[0].ID[7:20]); err != nil || freed == 0 {
				t.Errorf("Remove: %d bytes freed, %v", freed, err)
			}
			if l := left(t, s); len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}

// TestBadArchives shows that an archive that is no good leaves nothing.
func TestBadArchives(t *testing.T) {
	dir := t.TempDir()
	saved := filepath.Join(dir, "saved.tar")
	imagetest.Save(t, saved, "mine:1", imagetest.Image(t, imagetest.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: large(t, 100_000)})))
	data, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, data []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	file := func(files ...imagetest.File) string {
		return write("made.tar", imagetest.Layer(t, files...))
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		path func() string
		opts LoadOptions
		kind sandbox.Kind
		text string
	}{
		{"NotThere", func() string { return filepath.Join(dir, "none") }, LoadOptions{}, sandbox.NotFound, "no such file"},
		{"Empty", func() string { return write("e", nil) }, LoadOptions{}, sandbox.Invalid, "no image"},
		{"Garbage", func() string { return write("g", []byte(strings.Repeat("garbage", 1000))) }, LoadOptions{}, sandbox.Invalid, "is not an archive of images"},
		{"Truncated", func() string { return write("t", data[:len(data)/2]) }, LoadOptions{}, sandbox.Invalid, "too early"},
		{"EmptyDirectory", func() string { return empty }, LoadOptions{}, sandbox.Invalid, "no image"},
		{"NoConfig", func() string {
			return file(imagetest.File{Name: "manifest.json", Content: `[{"Config":"c.json","RepoTags":["x"],"Layers":[]}]`})
		}, LoadOptions{}, sandbox.Invalid, "lacks"},
		{"Climbs", func() string {
			return file(imagetest.File{Name: "manifest.json", Content: `[{"Config":"../../etc/passwd","RepoTags":["x"],"Layers":[]}]`})
		}, LoadOptions{}, sandbox.Invalid, "lacks"},
		{"LinkLoop", func() string {
			return file(imagetest.File{Name: "manifest.json", Link: "index.json"}, imagetest.File{Name: "index.json", Link: "manifest.json"})
		}, LoadOptions{}, sandbox.Invalid, "no image"},
		{"NoName", func() string {
			return file(imagetest.File{Name: "manifest.json", Content: `[{"Config":"c","Layers":[]}]`}, imagetest.File{Name: "c", Content: "{}"})
		}, LoadOptions{}, sandbox.Invalid, "name"},
		{"BadName", func() string { return saved }, LoadOptions{Name: "Not A Name"}, sandbox.Invalid, "not a reference"},
		{"WrongLayer", func() string {
			return write("w", []byte(strings.Replace(string(data), "diff_ids\":[\"sha256:", "diff_ids\":[\"sha256:0", 1)))
		}, LoadOptions{}, sandbox.Invalid, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newStore(t, nil)
			list, err := s.Load(t.Context(), c.path(), c.opts)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v, %v: want one of kind %s about %q", list, err, c.kind, c.text)
			}
			if l := left(t, s); len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}

// TestPrune shows what is removed, by whom, and when.
func TestPrune(t *testing.T) {
	reg := imagetest.New(t)
	shared := imagetest.Layer(t, imagetest.File{Name: "s", Content: large(t, 1<<20)})
	one := reg.Push(t, "one", imagetest.Image(t, imagetest.Config{}, shared, imagetest.Layer(t, imagetest.File{Name: "1", Content: large(t, 1<<20)})))
	two := reg.Push(t, "two", imagetest.Image(t, imagetest.Config{}, shared, imagetest.Layer(t, imagetest.File{Name: "2", Content: large(t, 1<<20)})))
	dir := filepath.Join(t.TempDir(), "images")
	s := newStore(t, func(o *Options) { o.Dir = dir })
	for _, ref := range []string{one, two} {
		if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
			t.Fatal(err)
		}
	}
	saved := filepath.Join(t.TempDir(), "saved.tar")
	imagetest.Save(t, saved, "mine:1", imagetest.Image(t, imagetest.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: "1"})))
	if _, err := s.Load(t.Context(), saved, LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	names := func() string {
		list, err := s.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, i := range list {
			all = append(all, strings.TrimPrefix(i.Name, reg.Host+"/"))
		}
		if len(all) > 1 && all[0] > all[len(all)-1] {
			all[0], all[len(all)-1] = all[len(all)-1], all[0]
		}
		return strings.Join(all, " ")
	}
	// While somebody makes a sandbox of it, an image is not removed.
	r, err := s.Root(t.Context(), one)
	if err != nil {
		t.Fatal(err)
	}
	removed := make(chan error)
	go func() { _, err := s.Remove(t.Context(), one); removed <- err }()
	select {
	case err := <-removed:
		t.Fatalf("removed while it was used: %v", err)
	case <-time.After(50 * time.Millisecond): // it would have been at once
	}
	if _, err := os.Stat(r.Path); err != nil {
		t.Error(err)
	}
	r.Close()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	// What another image has too stays.
	if got := root(t, s, two); len(got["s"]) != 1<<20 {
		t.Error("the other image lost a layer")
	}
	if _, _, err := s.Prune(t.Context(), PruneOptions{}); err != nil || names() != "mine:1 two:latest" {
		t.Errorf("after prune: %s, %v", names(), err)
	}
	if _, _, err := s.Prune(t.Context(), PruneOptions{Unused: time.Nanosecond}); err != nil || names() != "mine:1" {
		t.Errorf("after prune of what is not used: %s, %v", names(), err)
	}

	// A bound on the space removes what was not used the longest.
	s = newStore(t, func(o *Options) { o.Dir, o.MaxBytes = dir, 5<<20 })
	for _, ref := range []string{one, two} {
		if _, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true}); err != nil {
			t.Fatal(err)
		}
	}
	if names() != "mine:1 two:latest" {
		t.Errorf("above the bound: %s", names())
	}
	if _, _, err := s.Prune(t.Context(), PruneOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	if l := left(t, s); len(l) > 0 || names() != "" {
		t.Errorf("left: %q %s", l, names())
	}
}

// TestDiskFull fills a disk, a small one in memory, while it is fetched and while
// it is unpacked, and shows that the space is free again.
func TestDiskFull(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small disk takes root")
	}
	reg := imagetest.New(t)
	ref := reg.Push(t, "x", imagetest.Image(t, imagetest.Config{}, imagetest.Layer(t, imagetest.File{Name: "a", Content: large(t, 8<<20)})))
	for name, size := range map[string]string{"Fetch": "size=4m", "Unpack": "size=12m"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := syscall.Mount("images", dir, "tmpfs", 0, size); err != nil {
				t.Skip("mounting a small disk is not allowed here:", err)
			}
			defer func() {
				if err := syscall.Unmount(dir, 0); err != nil {
					t.Error(err)
				}
			}()
			s := newStore(t, func(o *Options) { o.Dir = filepath.Join(dir, "images") })
			_, err := s.Pull(t.Context(), ref, PullOptions{Anywhere: true})
			if !errors.Is(err, sandbox.Exhausted) || !strings.Contains(err.Error(), "disk is full") || !strings.Contains(sandbox.HintOf(err), "prune") {
				t.Errorf("%v (hint: %s)", err, sandbox.HintOf(err))
			}
			if l := left(t, s); len(l) > 0 {
				t.Errorf("left: %q", l)
			}
		})
	}
}
