package template

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

const (
	alice = sandbox.Principal("alice")
	bob   = sandbox.Principal("bob")
	hash  = "00000000000000000000000000000000000000000000000000000000000000aa"
)

// A world has the sandboxes and the images of a test. Its programs do what does
// says, by the last of their arguments.
type world struct {
	mu       sync.Mutex
	does     map[string]func(ctx context.Context, said io.Writer) sandbox.Verdict
	live     map[string]sandbox.CreateRequest
	runs     map[string]func() sandbox.Run
	output   map[string][]byte
	ran      []sandbox.RunRequest
	unpacked []string
	images   map[string]sandbox.Image
	extend   error // of ExtendImage
	busy     bool  // images cannot be removed
	size     int64 // of each image that it makes
	n        int
}

func (w *world) Create(_ context.Context, p sandbox.Principal, req sandbox.CreateRequest) (sandbox.Sandbox, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	id := fmt.Sprintf("%s-%d", p, w.n)
	w.live[id] = req
	return sandbox.Sandbox{ID: id}, nil
}

func (w *world) Start(ctx context.Context, _ sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n++
	id := fmt.Sprintf("run-%d", w.n)
	w.ran = append(w.ran, req)
	do := w.does[req.Argv[len(req.Argv)-1]]
	if len(req.Argv) > 5 && req.Argv[2] == startScript {
		do = w.does["start "+req.Argv[4]]
	}
	var said bytes.Buffer
	v := sandbox.Verdict{Code: sandbox.OK}
	w.mu.Unlock()
	if do != nil {
		v = do(ctx, &said)
	}
	w.mu.Lock()
	run := sandbox.Run{ID: id, Verdict: v}
	if v.Cause == "exit status 97" {
		code := startFailed
		run.ExitCode = &code
	}
	w.runs[id] = func() sandbox.Run { return run }
	w.output[id] = said.Bytes()
	return run, nil
}

func (w *world) Follow(ctx context.Context, _ sandbox.Principal, id string, f func(sandbox.StreamName, []byte) error) error {
	w.mu.Lock()
	data := w.output[id]
	w.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	return f(sandbox.Stdout, data)
}

func (w *world) Wait(ctx context.Context, _ sandbox.Principal, id string) (sandbox.Run, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.runs[id](), ctx.Err()
}

func (w *world) Stop(_ context.Context, p sandbox.Principal, id string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.live[id]; !ok || !strings.HasPrefix(id, string(p)) {
		return sandbox.Errorf(sandbox.NotFound, "no sandbox")
	}
	delete(w.live, id)
	return nil
}

func (w *world) Unpack(_ context.Context, _ sandbox.Principal, _ string, r io.Reader, to sandbox.UnpackTo) error {
	var names []string
	for t := tar.NewReader(r); ; {
		h, err := t.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		names = append(names, fmt.Sprintf("%s %o", h.Name, h.Mode))
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unpacked = append(w.unpacked, fmt.Sprintf("%s %t %s: %s", to.Path, to.File, to.Owner, strings.Join(names, ", ")))
	return nil
}

func (w *world) MarkLayer(context.Context, sandbox.Principal, string) error { return nil }

func (w *world) Layer(context.Context, sandbox.Principal, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("layer")), nil
}

func (w *world) FetchImage(_ context.Context, p sandbox.Principal, ref string, _ func(sandbox.ImageProgress)) (sandbox.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if i, ok := w.images[ref]; ok {
		return i, nil
	}
	return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "image: %q is not here", ref)
}

func (w *world) ForgetImages(context.Context) error { return nil }

func (w *world) ExtendImage(_ context.Context, order driver.ImageExtension) (sandbox.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.extend != nil {
		return sandbox.Image{}, w.extend
	}
	w.n++
	i := sandbox.Image{Name: order.Name, ID: fmt.Sprintf("sha256:%d", w.n), Local: true, SizeBytes: w.size, Config: order.Config}
	w.images[order.Name] = i
	return i, nil
}

func (w *world) Images(context.Context) ([]sandbox.Image, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []sandbox.Image
	for _, i := range w.images {
		list = append(list, i)
	}
	return list, nil
}

func (w *world) RemoveImage(ctx context.Context, ref string) (int64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.busy {
		if _, ok := ctx.Deadline(); !ok {
			return 0, errors.New("a removal has no deadline")
		}
		return 0, sandbox.Errorf(sandbox.Conflict, "an image is being fetched")
	}
	if _, ok := w.images[ref]; !ok {
		return 0, sandbox.Errorf(sandbox.NotFound, "no image")
	}
	delete(w.images, ref)
	return 1, nil
}

// made returns the names of the images of templates.
func (w *world) made() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for name := range w.images {
		if strings.HasPrefix(name, imagePrefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// newTest returns a service with an image "base:1". Its work ends with the test.
func newTest(t *testing.T, change func(*Options)) (*Service, *world) {
	t.Helper()
	w := &world{
		does: map[string]func(context.Context, io.Writer) sandbox.Verdict{}, live: map[string]sandbox.CreateRequest{},
		runs: map[string]func() sandbox.Run{}, output: map[string][]byte{},
		images: map[string]sandbox.Image{"base:1": {Name: "base:1", ID: "sha256:base", Config: sandbox.ImageConfig{
			Env: []string{"A=of the base"}, User: "app", WorkDir: "/app",
		}}},
	}
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	o := Options{
		Store: db, Sandboxes: w, Images: w, Driver: "world", Owner: "this", Dir: filepath.Join(dir, "templates"), Log: slog.New(slog.DiscardHandler),
		Now: time.Now, Maximum: sandbox.Limits{CPUs: 2, MemoryBytes: 1 << 30}, ProgramTime: time.Minute,
		ContextSize: 1 << 20, Builds: 1, BuildTime: time.Hour, ReadyTime: time.Minute,
	}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close(errEnding)
		s.group.Wait()
	})
	return s, w
}

// begin requests a build and begins it.
func begin(t *testing.T, s *Service, name string, plan Plan) (Template, Build) {
	t.Helper()
	tm, b, err := s.Request(t.Context(), alice, Order{Name: name, CPUs: 8, MemoryMB: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Begin(t.Context(), alice, tm.ID, b.ID, plan); err != nil {
		t.Fatal(err)
	}
	return tm, b
}

// wait returns a build when this process has ended it.
func wait(t *testing.T, s *Service, tm Template, b Build) Build {
	t.Helper()
	s.mu.Lock()
	l := s.live[b.ID]
	s.mu.Unlock()
	if l != nil {
		<-l.done
	}
	b, err := s.Build(t.Context(), alice, tm.ID, b.ID)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// build runs a whole build.
func build(t *testing.T, s *Service, name string, plan Plan) (Template, Build) {
	t.Helper()
	tm, b := begin(t, s, name, plan)
	return tm, wait(t, s, tm, b)
}

// archive returns a compressed archive. A text that begins with -> is a link.
func archive(t *testing.T, files ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Name: files[i], Mode: 0o640, Size: int64(len(files[i+1])), Typeflag: tar.TypeReg}
		target, link := strings.CutPrefix(files[i+1], "->")
		if link {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, target, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if !link {
			if _, err := io.WriteString(w, files[i+1]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func upload(t *testing.T, s *Service, data []byte) {
	t.Helper()
	if err := s.Upload(t.Context(), alice, hash, int64(len(data)), bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
}

// left returns the files and directories below a directory, without itself.
func left(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if name != dir {
			names = append(names, strings.TrimPrefix(name, dir+string(os.PathSeparator)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}
