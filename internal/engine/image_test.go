package engine

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const bob = sandbox.Principal("bob")

// imageWorld is a driver with images: those of a registry, and those that are
// here, by name.
type imageWorld struct {
	worldDriver
	features driver.Features

	mu       sync.Mutex
	registry map[string]sandbox.Image
	here     map[string]sandbox.Image
	pulls    []string
	pulling  func(ctx context.Context, ref string) // takes the time of a pull; nil is none
}

func newImageWorld(w *world) *imageWorld {
	return &imageWorld{
		worldDriver: worldDriver{w}, features: driver.Features{Host: true, Images: true},
		registry: map[string]sandbox.Image{}, here: map[string]sandbox.Image{},
	}
}

func (d *imageWorld) Info() driver.Info {
	return driver.Info{Name: "world", Isolates: true, Features: d.features}
}

func (d *imageWorld) ImageName(ref string) (string, error) { return ref, nil }

func (d *imageWorld) PullImage(ctx context.Context, o driver.ImagePull) (sandbox.Image, error) {
	ref, missing := o.Ref, o.Missing
	if d.pulling != nil {
		d.pulling(ctx, ref)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, ok := d.find(ref); ok && missing {
		return i, nil
	}
	d.pulls = append(d.pulls, ref)
	i, ok := d.registry[ref]
	if !ok {
		return i, sandbox.Errorf(sandbox.NotFound, "registry has no %s", ref)
	}
	d.here[ref] = i
	return i, nil
}

func (d *imageWorld) find(ref string) (sandbox.Image, bool) {
	for _, i := range d.here {
		if i.Name == ref || i.ID == ref || len(ref) == 12 && strings.HasPrefix(i.ID, "sha256:"+ref) {
			return i, true
		}
	}
	return sandbox.Image{}, false
}

func (d *imageWorld) LoadImages(context.Context, driver.ImageArchive, func(sandbox.ImageProgress)) ([]sandbox.Image, error) {
	return nil, errors.ErrUnsupported
}

func (d *imageWorld) Images(context.Context) ([]sandbox.Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var list []sandbox.Image
	for _, i := range d.here {
		list = append(list, i)
	}
	return list, nil
}

func (d *imageWorld) Image(_ context.Context, ref string) (sandbox.Image, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if i, ok := d.find(ref); ok {
		return i, nil
	}
	return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "image %s is not here", ref)
}

func (d *imageWorld) PruneImages(context.Context, time.Duration, bool) ([]string, int64, error) {
	return nil, 0, errors.ErrUnsupported
}

func (d *imageWorld) RemoveImage(context.Context, string) (int64, error) {
	return 0, errors.ErrUnsupported
}

// put makes images that the operator put there without Glovebox, or that were
// there before.
func (d *imageWorld) put(images ...sandbox.Image) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, i := range images {
		d.here[i.Name] = i
	}
}

// asked returns what was asked of registries since the last call.
func (d *imageWorld) asked() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	asked := d.pulls
	d.pulls = nil
	return asked
}

// runnerOf returns an image that says of itself that it runs languages.
func runnerOf(name, id string, languages ...string) sandbox.Image {
	return sandbox.Image{Name: name, ID: id, Config: sandbox.ImageConfig{
		Entrypoint: []string{"cat"},
		Labels:     map[string]string{"sandbox.runner": "true", "glovebox.languages": strings.Join(languages, " ")},
	}}
}

const (
	evil = "evil.example/img:1"
	good = "good.example/img:1"
)

// imageTest runs a test on a driver that keeps images itself, and on one whose
// engine does.
func imageTest(t *testing.T, test func(t *testing.T, d *imageWorld, e *Engine)) {
	for name, f := range map[string]driver.Features{
		"Embedded": {Host: true, Images: true},
		"Engine":   {Images: true, EngineImages: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				d := newImageWorld(w)
				d.features = f
				test(t, d, openWorld(t, w, t.TempDir(), func(o *Options) { o.Driver = d }))
			})
		})
	}
}

// imageOf returns the image in which a principal's code runs, and the error of
// the run's start.
func imageOf(t *testing.T, e *Engine, p sandbox.Principal, language, image string) (string, error) {
	t.Helper()
	req := sandbox.RunRequest{Code: "SECRET SOURCE", Language: language}
	req.New.Image = image
	r, err := e.Start(t.Context(), p, req)
	if err != nil {
		return "", err
	}
	s, err := e.Get(t.Context(), p, r.SandboxID)
	if err != nil {
		t.Fatal(err)
	}
	return s.Image, nil
}

// TestForeignRunner has a principal pull images that name themselves runners: no
// other principal's code runs in them, and no other hears of them.
func TestForeignRunner(t *testing.T) {
	imageTest(t, func(t *testing.T, d *imageWorld, e *Engine) {
		const python = "evil.example/python:1"
		d.registry[evil] = runnerOf(evil, "sha256:e1", "cobol")
		d.registry[python] = runnerOf(python, "sha256:e2", "python")
		runner, err := e.opts.Runners.Find("python")
		if err != nil {
			t.Fatal(err)
		}
		d.registry[runner.Image] = sandbox.Image{Name: runner.Image, ID: "sha256:99"}
		if _, err := imageOf(t, e, bob, "cobol", ""); !errors.Is(err, sandbox.Invalid) {
			t.Fatalf("before: %v", err)
		}
		before, err := imageOf(t, e, bob, "python", "")
		if err != nil {
			t.Fatal(err)
		}
		for image, language := range map[string]string{evil: "cobol", python: "python"} {
			if _, err := imageOf(t, e, alice, language, image); err != nil {
				t.Fatalf("the principal names its image: %v", err)
			}
		}
		if got, err := imageOf(t, e, alice, "cobol", ""); got != evil {
			t.Errorf("the principal names its image's language: %q, %v", got, err)
		}
		if got, err := imageOf(t, e, bob, "cobol", ""); !errors.Is(err, sandbox.Invalid) || sandbox.HintOf(err) == "" {
			t.Errorf("image %q got another principal's code: %v", got, err)
		}
		if got, err := imageOf(t, e, bob, "python", ""); got != before {
			t.Errorf("image %q got another principal's code, before it was %q: %v", got, before, err)
		}
		if got := e.LanguageByExtension(t.Context(), bob, "cobol"); got != "" {
			t.Errorf("an extension: %q", got)
		}
		for _, p := range []sandbox.Principal{bob, store.OperatorImage, sandbox.Local} {
			if got := e.RunnerImages(t.Context(), p); len(got) > 0 {
				t.Errorf("%q is told of %v", p, got)
			}
		}
		want := map[string]string{"cobol": evil, "python": python}
		if got := e.RunnerImages(t.Context(), alice); !maps.Equal(got, want) {
			t.Errorf("the principal is told of %v", got)
		}
		// The operator may think otherwise.
		if err := e.AdoptImages(t.Context(), d.registry[evil]); err != nil {
			t.Fatal(err)
		}
		if got, err := imageOf(t, e, bob, "cobol", ""); got != evil {
			t.Errorf("after adoption: %q, %v", got, err)
		}
	})
}

// TestForeignName has a principal name an image that another had pulled: its name
// stands for what the registry has now, and its digest for nothing.
func TestForeignName(t *testing.T) {
	imageTest(t, func(t *testing.T, d *imageWorld, e *Engine) {
		get := func(p sandbox.Principal, ref string) string {
			t.Helper()
			i, err := e.FetchImage(t.Context(), p, ref, nil)
			if err != nil {
				return string(sandbox.KindOf(err))
			}
			return i.ID
		}
		first, second := "sha256:"+strings.Repeat("a", 64), "sha256:"+strings.Repeat("b", 64)
		d.registry[good] = sandbox.Image{Name: good, ID: first}
		has := func(p sandbox.Principal, ref string, want bool) {
			t.Helper()
			if got, err := e.HasImage(t.Context(), p, ref); err != nil || got != want {
				t.Errorf("%s has %s: %v, %v; want %v", p, ref, got, err, want)
			}
		}
		has(alice, good, false) // the registry has it, and was not asked
		for range 2 {
			if got := get(alice, good); got != first {
				t.Fatal(got)
			}
		}
		has(alice, good, true)
		has(mallory, good, false)
		has(alice, "no such image", false)
		if got := d.asked(); len(got) != 1 {
			t.Errorf("one principal asked the registry %d times", len(got))
		}
		for _, ref := range []string{first, strings.Repeat("a", 12)} {
			if got := get(bob, ref); got != string(sandbox.NotFound) {
				t.Errorf("another's image by its digest %s: %s", ref, got)
			}
			if got := get(alice, ref); got != first {
				t.Errorf("the own image by its digest %s: %s", ref, got)
			}
		}
		e.opts.CommandLine = true
		e.images = e.newImages()
		if _, err := e.FetchImage(t.Context(), sandbox.Local, first, nil); !errors.Is(err, sandbox.NotFound) || !strings.Contains(sandbox.HintOf(err), "adopt") {
			t.Errorf("the operator names another's image by its digest: %v", err)
		}
		d.registry[good] = sandbox.Image{Name: good, ID: second}
		if got := get(alice, good); got != first {
			t.Errorf("the own image by its name: %s", got)
		}
		if got := get(bob, good); got != second {
			t.Errorf("another's image by its name: %s", got)
		}
		delete(d.registry, good)
		if got := get("carol", good); got != string(sandbox.NotFound) {
			t.Errorf("another's image that no registry has: %s", got)
		}
		if got := get(bob, good); got != second {
			t.Errorf("the own image that no registry has: %s", got)
		}
		// What the operator fetched is for all, and asks no registry.
		d.registry[good] = sandbox.Image{Name: good, ID: first}
		if _, err := e.PullImage(t.Context(), good, nil); err != nil {
			t.Fatal(err)
		}
		d.asked()
		for _, p := range []sandbox.Principal{alice, bob, "carol"} {
			if got := get(p, good); got != first {
				t.Errorf("the operator's image for %s: %s", p, got)
			}
		}
		if got := d.asked(); len(got) > 0 {
			t.Errorf("asked for %v", got)
		}
	})
}

// TestOperatorImage has a principal pull images that the operator has as well: all
// others keep them.
func TestOperatorImage(t *testing.T) {
	imageTest(t, func(t *testing.T, d *imageWorld, e *Engine) {
		made := runnerOf("made:1", "sha256:01", "cobol")
		made.Local = true
		d.put(made, runnerOf("hand/pulled:1", "sha256:02", "ada"))
		want := map[string]string{"cobol": "made:1"}
		if e.features.EngineImages {
			want["ada"] = "hand/pulled:1" // by docker pull, say
		}
		check := func(when string) {
			t.Helper()
			if got := e.RunnerImages(t.Context(), bob); !maps.Equal(got, want) {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
		check("before")
		for name, id := range map[string]string{evil: "sha256:01", "evil.example/img:2": "sha256:02"} {
			d.registry[name] = runnerOf(name, id, "cobol", "ada")
			if _, err := e.FetchImage(t.Context(), alice, name, nil); err != nil {
				t.Fatal(err)
			}
			// It has that name as well now.
			d.mu.Lock()
			delete(d.here, name)
			d.mu.Unlock()
		}
		check("after a principal pulled the same")
	})
}

// TestKilledPull has a server killed in the middle of a pull: the image that came
// is not taken for the operator's, and is its principal's after the next sweep.
func TestKilledPull(t *testing.T) {
	imageTest(t, func(t *testing.T, d *imageWorld, e *Engine) {
		ctx := t.Context()
		begin := func(name string) {
			t.Helper()
			if _, err := e.store.BeginImagePull(ctx, e.name, name, alice); err != nil {
				t.Fatal(err)
			}
		}
		begin(evil)
		begin("evil.example/never:1")
		d.put(runnerOf(evil, "sha256:e1", "cobol"))
		want := map[string]string{"cobol": evil}
		check := func(when string) {
			t.Helper()
			if got := e.RunnerImages(ctx, alice); !maps.Equal(got, want) {
				t.Errorf("%s: the principal has %v", when, got)
			}
			if got := e.RunnerImages(ctx, bob); len(got) > 0 {
				t.Errorf("%s: another has %v", when, got)
			}
		}
		check("killed")
		for _, left := range []int{2, 0} {
			if err := e.Sweep(ctx); err != nil {
				t.Fatal(err)
			}
			records, err := e.store.ImageRecords(ctx, e.name)
			if err != nil || len(records.Pulls) != left {
				t.Errorf("%d pulls are under way, want %d: %v", len(records.Pulls), left, err)
			}
			check("swept")
			time.Sleep(time.Hour)
		}
	})
}

// TestImagesOfBefore has images from before owners were recorded, in an engine
// that other principals used too: those that were not made here are nobody's until
// the operator adopts them.
func TestImagesOfBefore(t *testing.T) {
	imageTest(t, func(t *testing.T, d *imageWorld, e *Engine) {
		made := runnerOf("made:1", "sha256:01", "ada")
		made.Local = true
		d.put(made, runnerOf(evil, "sha256:e1", "cobol"))
		db, err := sql.Open("sqlite", filepath.Join(e.opts.StateDir, store.FileName))
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(t.Context(), `INSERT INTO image_surveys VALUES (?)`, e.name); err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"ada": "made:1"}
		check := func(when string) {
			t.Helper()
			for _, p := range []sandbox.Principal{alice, sandbox.Local} {
				if got := e.RunnerImages(t.Context(), p); !maps.Equal(got, want) {
					t.Errorf("%s, %s has %v, want %v", when, p, got, want)
				}
			}
		}
		check("at first")
		_, err = imageOf(t, e, alice, "cobol", "")
		if !errors.Is(err, sandbox.Invalid) || strings.Contains(sandbox.HintOf(err), evil) {
			t.Errorf("a principal is told %v, %q", err, sandbox.HintOf(err))
		}
		e.opts.CommandLine = true
		e.images = e.newImages()
		_, err = imageOf(t, e, sandbox.Local, "cobol", "")
		if !errors.Is(err, sandbox.Invalid) || !strings.Contains(sandbox.HintOf(err), "glovebox images adopt "+evil) {
			t.Errorf("the operator is told %v, %q", err, sandbox.HintOf(err))
		}
		// By its name it is what it was.
		if got, err := imageOf(t, e, alice, "cobol", evil); got != evil || len(d.asked()) > 0 {
			t.Errorf("%q, %v", got, err)
		}
		d.put(runnerOf("hand/pulled:1", "sha256:02", "pascal"))
		if e.features.EngineImages {
			want["pascal"] = "hand/pulled:1" // only what was there before is nobody's
		}
		check("later")
		if err := e.AdoptImages(t.Context(), runnerOf(evil, "sha256:e1")); err != nil {
			t.Fatal(err)
		}
		want["cobol"] = evil
		check("after adoption")
	})
}
