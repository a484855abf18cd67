package release

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/update"
)

// made makes a release of programs that are none, and returns it.
func made(t *testing.T) *Release {
	t.Helper()
	text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(text, "")
	if err != nil {
		t.Fatal(err)
	}
	r := &Release{
		Version: "v1.2.3", Time: time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC),
		Platforms: []Platform{{"linux", "amd64"}, {"windows", "amd64"}},
		Programs:  t.TempDir(), Source: filepath.Join("..", ".."), Out: t.TempDir(), Key: key,
		inspect: func(io.ReaderAt) (*debug.BuildInfo, error) {
			return &debug.BuildInfo{
				GoVersion: "go1.26.0", Main: debug.Module{Path: "example.com/box"},
				Deps: []*debug.Module{
					{Path: "example.com/z", Version: "v1.0.0", Replace: &debug.Module{Path: "example.com/a", Version: "v0.1.0"}},
					{Path: "example.com/b", Version: "v2.0.0"},
				},
			}, nil
		},
	}
	for _, p := range r.Platforms {
		dir := filepath.Join(r.Programs, p.String())
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, p.program()), []byte("a program for "+p.String()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Make(); err != nil {
		t.Fatal(err)
	}
	return r
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = data
	}
	return all
}

// TestRenew announces a release again.
func TestRenew(t *testing.T) {
	r := made(t)
	before := files(t, r.Out)
	later := r.Time.Add(100 * 24 * time.Hour)
	if err := (&Release{Out: r.Out, Key: r.Key, Time: r.Time.Add(-time.Second)}).Renew(); err == nil {
		t.Error("a release was announced again before it was published")
	}
	if err := (&Release{Out: r.Out, Key: r.Key, Time: later}).Renew(); err != nil {
		t.Fatal(err)
	}
	after := files(t, r.Out)
	var was, is update.Manifest
	if err := errors.Join(json.Unmarshal(before[update.ManifestName], &was), json.Unmarshal(after[update.ManifestName], &is)); err != nil {
		t.Fatal(err)
	}
	if want := r.Time.Add(update.Validity); !was.Expires.Equal(want) {
		t.Errorf("the release expires %s, want %s", was.Expires, want)
	}
	if want := later.Add(update.Validity); !is.Expires.Equal(want) {
		t.Errorf("announced again it expires %s, want %s", is.Expires, want)
	}
	was.Expires = is.Expires
	if d := cmp.Diff(was, is); d != "" {
		t.Errorf("more than the expiry changed (-want +got):\n%s", d)
	}
	public, _ := r.Key.Public().(minisign.PublicKey)
	for name, data := range after {
		if text, ok := strings.CutSuffix(name, ".minisig"); ok {
			if !minisign.Verify(public, after[text], data) {
				t.Errorf("the signature of %s is not that of the key", text)
			}
		} else if name != update.ManifestName && name != ChecksumsName && !bytes.Equal(data, before[name]) {
			t.Errorf("%s changed", name)
		}
	}
	sum := sha256.Sum256(after[update.ManifestName])
	if !bytes.Contains(after[ChecksumsName], []byte(hex.EncodeToString(sum[:])+"  "+update.ManifestName)) {
		t.Errorf("%s does not have the new manifest", ChecksumsName)
	}
}

func TestMake(t *testing.T) {
	r := made(t)
	got := files(t, r.Out)

	// Every file has its checksum, and the checksums have a signature.
	listed := map[string]string{}
	for line := range strings.Lines(string(got[ChecksumsName])) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		listed[name] = sum
	}
	for _, name := range []string{ChecksumsName, update.ManifestName} {
		public, _ := r.Key.Public().(minisign.PublicKey)
		if !minisign.Verify(public, got[name], got[name+".minisig"]) {
			t.Errorf("the signature of %s is not that of the key", name)
		}
	}
	want := map[string]string{}
	for name, data := range got {
		if name != ChecksumsName && !strings.HasSuffix(name, ".minisig") {
			sum := sha256.Sum256(data)
			want[name] = hex.EncodeToString(sum[:])
		}
	}
	if d := cmp.Diff(want, listed); d != "" {
		t.Errorf("%s (-want +got):\n%s", ChecksumsName, d)
	}
	for _, name := range []string{
		"glovebox_linux_amd64.tar.gz", "glovebox_windows_amd64.zip", "glovebox_linux_amd64.cdx.json",
		"glovebox_amd64.mcpb", "server.json", "glovebox.rb", "install.sh", "install.ps1", "manifest.json",
	} {
		if _, ok := listed[name]; !ok {
			t.Errorf("there is no %s", name)
		}
	}

	key, err := PublicKey(r.Key)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"install.sh", "install.ps1"} {
		if !bytes.Contains(got[name], []byte("'"+key+"'")) || bytes.Contains(got[name], []byte(noKey)) {
			t.Errorf("%s does not know the key", name)
		}
	}
	if !bytes.Contains(got["glovebox.rb"], []byte(listed["glovebox_linux_amd64.tar.gz"])) {
		t.Error("the formula does not have the checksum of the archive")
	}
	if !bytes.Contains(got["server.json"], []byte(listed["glovebox_amd64.mcpb"])) {
		t.Error("the registry's entry does not have the checksum of the bundle")
	}
}

// TestReproducible makes a release a second time: other time of day, other
// directory, files in another order. All but signatures must be the same.
func TestReproducible(t *testing.T) {
	r := made(t)
	again := *r
	again.Out = t.TempDir()
	again.Time = r.Time.In(time.FixedZone("elsewhere", 3600)).Add(time.Millisecond)
	if err := again.Make(); err != nil {
		t.Fatal(err)
	}
	first, second := files(t, r.Out), files(t, again.Out)
	if len(first) != len(second) {
		t.Errorf("%d files, then %d", len(first), len(second))
	}
	for name, data := range first {
		if !strings.HasSuffix(name, ".minisig") && !bytes.Equal(data, second[name]) {
			t.Errorf("%s is not the same the second time", name)
		}
	}
}

// TestUpdateTakesIt has the updater of the program before this one.
func TestUpdateTakesIt(t *testing.T) {
	r := made(t)
	key, err := PublicKey(r.Key)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(r.Out)))
	defer server.Close()
	for _, p := range r.Platforms {
		if runtime.GOOS == "windows" && p.OS != "windows" {
			continue
		}
		path := filepath.Join(t.TempDir(), p.program())
		if err := os.WriteFile(path, []byte("the old one"), 0o755); err != nil {
			t.Fatal(err)
		}
		program, err := r.program(p)
		if err != nil {
			t.Fatal(err)
		}
		u := update.Updater{
			Current: "v1.0.0", Path: path, OS: p.OS, Arch: p.Arch,
			Keys: []string{key}, URL: server.URL + "/", StateDir: t.TempDir(),
			Version: func(context.Context, string) (string, error) { return "v1.2.3", nil },
		}
		status, err := u.Update(t.Context(), false)
		if err != nil || status.Latest != "v1.2.3" {
			t.Fatalf("update on %s: %v, %v", p, status, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, program) {
			t.Errorf("%s: the program is not that of the release: %v", p, err)
		}
	}
}

func TestBundle(t *testing.T) {
	r := made(t)
	data := files(t, r.Out)["glovebox_amd64.mcpb"]
	z, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	modes := map[string]os.FileMode{}
	for _, f := range z.File {
		modes[f.Name] = f.Mode().Perm()
	}
	want := map[string]os.FileMode{
		"manifest.json": 0o644, "LICENSE": 0o644, "server/linux/glovebox": 0o755, "server/windows/glovebox.exe": 0o755,
	}
	if d := cmp.Diff(want, modes); d != "" {
		t.Errorf("what is in it (-want +got):\n%s", d)
	}
	f, err := z.Open("manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var m struct {
		Server struct {
			Entry  string `json:"entry_point"`
			Config struct {
				Overrides map[string]struct{ Command string } `json:"platform_overrides"`
			} `json:"mcp_config"`
		}
	}
	if err := json.NewDecoder(f).Decode(&m); err != nil {
		t.Fatal(err)
	}
	if _, ok := modes[m.Server.Entry]; !ok {
		t.Errorf("entry point %q is not in it", m.Server.Entry)
	}
	if got := m.Server.Config.Overrides["win32"].Command; got != "${__dirname}/server/windows/glovebox.exe" {
		t.Errorf("on Windows it starts %q", got)
	}
}

func TestBill(t *testing.T) {
	r := made(t)
	var b bill
	if err := json.Unmarshal(files(t, r.Out)["glovebox_linux_amd64.cdx.json"], &b); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, c := range b.Components {
		refs = append(refs, c.Ref)
	}
	want := []string{"pkg:golang/example.com/a@v0.1.0", "pkg:golang/example.com/b@v2.0.0", "pkg:golang/std@1.26.0"}
	if d := cmp.Diff(want, refs); d != "" || b.Metadata.Component.Ref != "pkg:golang/example.com/box@v1.2.3" {
		t.Errorf("bill of %s (-want +got):\n%s", b.Metadata.Component.Ref, d)
	}
}

// TestBillOfNoProgram has the real way of looking.
func TestBillOfNoProgram(t *testing.T) {
	r := made(t)
	r.inspect = nil
	if err := r.Make(); err == nil || !strings.Contains(err.Error(), "has no build information") {
		t.Errorf("error %v", err)
	}
}

func TestRefused(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "latest", "v1.2.3+meta"} {
		r := Release{Version: version, Time: time.Unix(1, 0), Platforms: Platforms()}
		if err := r.Make(); err == nil || !strings.Contains(err.Error(), "version") {
			t.Errorf("version %q: %v", version, err)
		}
	}
	r := made(t)
	if err := os.Remove(filepath.Join(r.Programs, "linux_amd64", "glovebox")); err != nil {
		t.Fatal(err)
	}
	if err := r.Make(); err == nil || !strings.Contains(err.Error(), "glovebox") {
		t.Errorf("without a program: %v", err)
	}
}

func TestKeys(t *testing.T) {
	t.Parallel() // a password is made slow to try
	text, err := NewKey()
	if err != nil {
		t.Fatal(err)
	}
	key, err := ReadKey(text, "")
	if err != nil {
		t.Fatal(err)
	}
	locked, err := minisign.EncryptKey("open sesame", key)
	if err != nil {
		t.Fatal(err)
	}
	same, err := ReadKey(locked, "open sesame")
	if err != nil || !same.Equal(key) {
		t.Errorf("the key with a password: %v", err)
	}
	for _, bad := range []struct{ text, password string }{{"", ""}, {"no key", ""}} {
		if _, err := ReadKey([]byte(bad.text), bad.password); err == nil {
			t.Errorf("a key is read from %q with %q", bad.text, bad.password)
		}
	}
}
