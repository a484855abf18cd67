package update

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A world is a program that can be updated, and a server with releases.
type world struct {
	t       *testing.T
	key     minisign.PrivateKey
	dir     string
	files   map[string][]byte
	updater *Updater
}

var published = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// program is one that says its version, as ours does.
func program(version string) []byte {
	return []byte("#!/bin/sh\necho " + version + "\n")
}

func newWorld(t *testing.T) *world {
	if runtime.GOOS == "windows" {
		t.Skip("the programs of this test are shell scripts")
	}
	public, private, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := public.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, key: private, dir: t.TempDir(), files: map[string][]byte{}}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		data, ok := w.files[strings.TrimPrefix(r.URL.Path, "/r/")]
		if !ok {
			http.NotFound(rw, r)
			return
		}
		_, _ = rw.Write(data)
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(w.dir, "bin", "glovebox")
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, program("v1.0.0"), 0o755); err != nil {
		t.Fatal(err)
	}
	w.updater = &Updater{
		Current: "v1.0.0", Path: path, OS: "linux", Arch: "amd64",
		Keys: []string{string(key)}, URL: server.URL + "/r/", StateDir: filepath.Join(w.dir, "state"),
		Version: func(ctx context.Context, path string) (string, error) {
			out, err := exec.CommandContext(ctx, path).Output()
			return strings.TrimSpace(string(out)), err
		},
		Now: func() time.Time { return published.Add(48 * time.Hour) },
	}
	return w
}

// release puts a release on the server whose program is given.
func (w *world) release(version string, at time.Time, program []byte) {
	w.t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for name, data := range map[string][]byte{"README.md": []byte("x"), "glovebox": program} {
		if err := tw.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data)), Typeflag: tar.TypeReg}); err != nil {
			w.t.Fatal(err)
		}
		if _, err := tw.Write(data); err != nil {
			w.t.Fatal(err)
		}
	}
	if err := errors.Join(tw.Close(), gz.Close()); err != nil {
		w.t.Fatal(err)
	}
	w.announce(Manifest{Version: version, Published: at, Files: []File{w.file("linux", "glovebox_linux.tar.gz", b.Bytes())}})
}

func (w *world) file(system, name string, data []byte) File {
	w.files[name] = data
	sum := sha256.Sum256(data)
	return File{OS: system, Arch: "amd64", Name: name, Size: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
}

func (w *world) announce(m Manifest) {
	w.t.Helper()
	text, err := json.Marshal(m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.files[ManifestName], w.files[SignatureName] = text, Sign(text, w.key)
}

// want checks that the program is of that version and starts, and that nothing
// lies about.
func (w *world) want(version string) {
	w.t.Helper()
	got, err := w.updater.Version(context.Background(), w.updater.Path)
	if err != nil || got != version {
		w.t.Errorf("the program says %q, %v; want %s", got, err, version)
	}
	entries, err := os.ReadDir(filepath.Dir(w.updater.Path))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "glovebox" {
			w.t.Errorf("left behind: %s", e.Name())
		}
	}
}

func TestUpdate(t *testing.T) {
	w := newWorld(t)
	w.release("v1.1.0", published, program("v1.1.0"))
	status, err := w.updater.Check(t.Context())
	if want := (Status{"v1.0.0", "v1.1.0", true}); err != nil || status != want {
		t.Errorf("Check = %v, %v; want %v", status, err, want)
	}
	w.want("v1.0.0")
	if _, err := w.updater.Update(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.want("v1.1.0")

	// Again there is nothing to do, and nothing is fetched.
	w.updater.Current = "v1.1.0"
	delete(w.files, "glovebox_linux.tar.gz")
	if status, err := w.updater.Update(t.Context(), false); err != nil || status.Newer {
		t.Errorf("a second update: %v, %v", status, err)
	}
	if status, ok := w.updater.CheckedWithin(time.Hour); !ok || status.Newer {
		t.Errorf("CheckedWithin = %v, %v", status, ok)
	}
	w.updater.Now = func() time.Time { return published.Add(50 * time.Hour) }
	if _, ok := w.updater.CheckedWithin(time.Hour); ok {
		t.Error("a look of two hours ago counts as one within the hour")
	}
}

func TestUpdateThroughLink(t *testing.T) {
	w := newWorld(t)
	w.release("v1.1.0", published, program("v1.1.0"))
	link := filepath.Join(w.dir, "link")
	real := w.updater.Path
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	w.updater.Path = link
	if _, err := w.updater.Update(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(link); err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link became %v, %v", info, err)
	}
	w.updater.Path = real
	w.want("v1.1.0")
}

// TestFrozen shows an announcement for ever, so that later releases are not seen.
func TestFrozen(t *testing.T) {
	for name, test := range map[string]struct {
		expires time.Time // in the manifest; zero as before there were any
		after   time.Duration
		expired bool
	}{
		"fresh":                     {published.Add(Validity), 24 * time.Hour, false},
		"the last moment":           {published.Add(Validity), Validity, false},
		"too old":                   {published.Add(Validity), Validity + time.Second, true},
		"announced again":           {published.Add(2 * Validity), Validity + time.Second, false},
		"without a date":            {time.Time{}, Validity, false},
		"without a date, too old":   {time.Time{}, Validity + time.Second, true},
		"years after it was signed": {published.Add(Validity), 10 * Validity, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.release("v1.1.0", published, program("v1.1.0"))
			var m Manifest
			if err := json.Unmarshal(w.files[ManifestName], &m); err != nil {
				t.Fatal(err)
			}
			m.Expires = test.expires
			w.announce(m)
			w.updater.Now = func() time.Time { return published.Add(test.after) }
			if _, err := w.updater.Check(t.Context()); errors.Is(err, ErrExpired) != test.expired || !test.expired && err != nil {
				t.Errorf("Check: %v, want that it expired: %t", err, test.expired)
			}
			_, err := w.updater.Update(t.Context(), false)
			if !test.expired {
				if err != nil {
					t.Errorf("Update: %v", err)
				}
				w.want("v1.1.0")
				return
			}
			if !errors.Is(err, ErrExpired) || !errors.Is(err, sandbox.Invalid) || !strings.Contains(sandbox.HintOf(err), "--force") {
				t.Errorf("Update: %v (hint %q), want that it expired, and what to do", err, sandbox.HintOf(err))
			}
			w.want("v1.0.0")
			if _, err := w.updater.Update(t.Context(), true); err != nil {
				t.Errorf("Update with force: %v", err)
			}
			w.want("v1.1.0")
		})
	}
}

// TestRefused has what is wrong with a release; the program stays.
func TestRefused(t *testing.T) {
	newer := published.Add(time.Hour)
	for name, test := range map[string]struct {
		spoil func(*world)
		kind  sandbox.Kind
		says  string
	}{
		"tampered manifest": {func(w *world) {
			w.files[ManifestName] = bytes.Replace(w.files[ManifestName], []byte("v1.1.0"), []byte("v9.9.9"), 1)
		}, sandbox.Invalid, "signature"},
		"another's key": {func(w *world) {
			_, other, err := minisign.GenerateKey(rand.Reader)
			if err != nil {
				w.t.Fatal(err)
			}
			w.files[SignatureName] = Sign(w.files[ManifestName], other)
		}, sandbox.Invalid, "signature"},
		"signature of something else": {func(w *world) {
			w.files[SignatureName] = Sign([]byte("{}"), w.key)
		}, sandbox.Invalid, "signature"},
		"no signature":        {func(w *world) { delete(w.files, SignatureName) }, sandbox.Unavailable, "404"},
		"signature is a page": {func(w *world) { w.files[SignatureName] = []byte("<html>") }, sandbox.Invalid, "signature"},
		"huge manifest":       {func(w *world) { w.files[ManifestName] = make([]byte, maxManifest+1) }, sandbox.Invalid, "larger"},
		"tampered archive": {func(w *world) {
			w.files["glovebox_linux.tar.gz"][40] ^= 1
		}, sandbox.Invalid, "SHA-256"},
		"truncated archive": {func(w *world) {
			w.files["glovebox_linux.tar.gz"] = w.files["glovebox_linux.tar.gz"][:50]
		}, sandbox.Invalid, "50 bytes"},
		"longer archive": {func(w *world) {
			w.files["glovebox_linux.tar.gz"] = append(w.files["glovebox_linux.tar.gz"], make([]byte, 1<<20)...)
		}, sandbox.Invalid, "bytes"},
		"missing archive": {func(w *world) { delete(w.files, "glovebox_linux.tar.gz") }, sandbox.Unavailable, "404"},
		"replay of an older manifest": {func(w *world) {
			w.release("v1.2.0", newer, program("v1.2.0"))
			if _, err := w.updater.Check(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
			w.release("v1.1.0", published, program("v1.1.0"))
		}, sandbox.Invalid, "published 2026-11-01"},
		"older version":             {func(w *world) { w.release("v0.9.0", newer, program("v0.9.0")) }, sandbox.Conflict, "older"},
		"version is none":           {func(w *world) { w.release("latest", newer, program("latest")) }, sandbox.Invalid, "version"},
		"nothing for this platform": {func(w *world) { w.updater.Arch = "riscv64" }, sandbox.Unsupported, "linux/riscv64"},
		"name leads elsewhere": {func(w *world) {
			w.announce(Manifest{Version: "v1.1.0", Published: newer, Files: []File{{"linux", "amd64", "../../x", 1, strings.Repeat("0", 64)}}})
		}, sandbox.Invalid, "../../x"},
		"program does not start": {func(w *world) { w.release("v1.1.0", newer, []byte("no program")) }, sandbox.Unsupported, "does not start"},
		"program is another":     {func(w *world) { w.release("v1.1.0", newer, program("v1.0.5")) }, sandbox.Unsupported, `"v1.0.5"`},
		"archive without it": {func(w *world) {
			var b bytes.Buffer
			gz := gzip.NewWriter(&b)
			if err := errors.Join(tar.NewWriter(gz).Close(), gz.Close()); err != nil {
				w.t.Fatal(err)
			}
			w.announce(Manifest{Version: "v1.1.0", Published: newer, Files: []File{w.file("linux", "a.tar.gz", b.Bytes())}})
		}, sandbox.Invalid, "the archive has no glovebox"},
		"built from source":   {func(w *world) { w.updater.Keys = nil }, sandbox.Unsupported, "built from source"},
		"development build":   {func(w *world) { w.updater.Current = "v1.0.0-3-gabcdef1" }, sandbox.Conflict, "development"},
		"plain http":          {func(w *world) { w.updater.URL = "http://releases.example.com/" }, sandbox.Invalid, "https"},
		"server is not there": {func(w *world) { w.updater.URL = "http://127.0.0.1:1/" }, sandbox.Unavailable, "manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.release("v1.1.0", published, program("v1.1.0"))
			test.spoil(w)
			_, err := w.updater.Update(t.Context(), false)
			if !errors.Is(err, test.kind) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("error %v; want one of kind %s that says %q", err, test.kind, test.says)
			}
			w.want("v1.0.0")
		})
	}
}

// TestRollBack has a program that starts where it was unpacked, but not in the
// old one's place.
func TestRollBack(t *testing.T) {
	w := newWorld(t)
	w.release("v1.1.0", published, []byte("#!/bin/sh\ncase $0 in */.glovebox-update-*) echo v1.1.0;; *) exit 1;; esac\n"))
	if _, err := w.updater.Update(t.Context(), false); !errors.Is(err, sandbox.Unsupported) {
		t.Errorf("error %v", err)
	}
	w.want("v1.0.0")
}

func TestForce(t *testing.T) {
	w := newWorld(t)
	w.release("v0.9.0", published, program("v0.9.0"))
	if _, err := w.updater.Update(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.want("v0.9.0")
	w.updater.Current = "v1.0.0-3-gabcdef1-dirty"
	w.release("v1.1.0", published.Add(time.Hour), program("v1.1.0"))
	if _, err := w.updater.Update(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	w.want("v1.1.0")
}

func TestNoPlaceToWrite(t *testing.T) {
	w := newWorld(t)
	w.release("v1.1.0", published, program("v1.1.0"))
	dir := filepath.Dir(w.updater.Path)
	if os.Geteuid() == 0 {
		t.Skip("root may write to any directory; see TestDisk")
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Error(err)
		}
	})
	if _, err := w.updater.Update(t.Context(), false); !errors.Is(err, sandbox.Unavailable) || sandbox.HintOf(err) == "" {
		t.Errorf("error %v, hint %q", err, sandbox.HintOf(err))
	}
	w.want("v1.0.0")
}

func TestZip(t *testing.T) {
	w := newWorld(t)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	f, err := z.Create("glovebox.exe")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(program("v1.1.0")); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	w.announce(Manifest{Version: "v1.1.0", Published: published, Files: []File{w.file("windows", "glovebox_windows.zip", b.Bytes())}})
	w.updater.OS = "windows"
	if _, err := w.updater.Update(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	w.want("v1.1.0")
}

func TestManaged(t *testing.T) {
	there := func(names ...string) func(string) bool {
		return func(path string) bool {
			for _, n := range names {
				if n == path {
					return true
				}
			}
			return false
		}
	}
	var got []string
	for _, test := range []struct {
		path, system string
		exists       func(string) bool
	}{
		{"/opt/homebrew/Cellar/glovebox/1.0/bin/glovebox", "darwin", there()},
		{"/nix/store/abc-glovebox/bin/glovebox", "linux", there()},
		{"/snap/glovebox/1/glovebox", "linux", there()},
		{`C:\Users\a\scoop\apps\glovebox\current\glovebox.exe`, "windows", there()},
		{`C:\Users\a\AppData\Local\Microsoft\WinGet\Packages\glovebox\glovebox.exe`, "windows", there()},
		{"/usr/bin/glovebox", "linux", there("/var/lib/dpkg/info/glovebox.list")},
		{"/usr/bin/glovebox", "linux", there("/usr/share/doc/glovebox/installed")},
		{"/usr/bin/glovebox", "linux", there()},
		{"/usr/local/bin/glovebox", "linux", there("/var/lib/dpkg/info/glovebox.list")},
		{"/home/a/.local/bin/glovebox", "linux", there()},
	} {
		hint := "-"
		if err := unmanaged(test.path, test.system, test.exists); err != nil {
			if !errors.Is(err, sandbox.Conflict) {
				t.Errorf("%s: %v", test.path, err)
			}
			hint = sandbox.HintOf(err)
		}
		got = append(got, hint)
	}
	want := []string{
		"brew upgrade glovebox", "update it with Nix", "snap refresh glovebox", "scoop update glovebox", "winget upgrade glovebox",
		"apt-get install --only-upgrade glovebox", "update it with the system's package manager", "-", "-", "-",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func FuzzManifest(f *testing.F) {
	w := []byte(`{"version":"v1.1.0","published":"2026-11-01T00:00:00Z","files":[{"os":"linux","arch":"amd64","name":"a","size":1,"sha256":"` + strings.Repeat("0", 64) + `"}]}`)
	f.Add(w, []byte("sig"))
	public, _, err := minisign.GenerateKey(rand.Reader)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, manifest, signature []byte) {
		u := &Updater{Keys: []string{public.String()}, URL: "http://127.0.0.1/", Client: &http.Client{Transport: canned{manifest, signature}}}
		if m, err := u.manifest(t.Context()); err == nil {
			t.Fatalf("%v was taken for one that is signed", m)
		}
	})
}

type canned struct{ manifest, signature []byte }

func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	body := c.manifest
	if strings.HasSuffix(r.URL.Path, SignatureName) {
		body = c.signature
	}
	_, _ = w.Write(body)
	return w.Result(), nil
}
