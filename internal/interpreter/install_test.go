package interpreter

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/language"
)

// An installedPackage is a package in the output of an installer.
type installedPackage struct {
	Name, Version string
	// New is set if the package was not there before in that version.
	New bool
}

// parseInstalled parses the output of an installer.
func parseInstalled(output string) []installedPackage {
	var list []installedPackage
	for line := range strings.Lines(output) {
		f := strings.Fields(line)
		if len(f) == 3 && (f[0] == "installed" || f[0] == "present") {
			list = append(list, installedPackage{f[1], f[2], f[0] == "installed"})
		}
	}
	return list
}

// need skips the test without a program, and fails it if GLOVEBOX_REQUIRE names
// it.
func need(t *testing.T, word string, argv ...string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), argv[0], argv[1:]...).Run(); err != nil {
		if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), word) {
			t.Fatalf("%s is required: %v", word, err)
		}
		t.Skipf("%s is not here: %v", word, err)
	}
}

// install runs an installer with its environment in a directory of the test's
// own, and returns what it says and that environment.
func install(t *testing.T, i Installer, dir, index string, packages ...string) ([]installedPackage, string, []string, error) {
	t.Helper()
	return installBy(t, i, i.Argvs(packages)[0], "/usr/local/bin:/usr/bin:/bin", dir, index)
}

// installBy does it by argv, with the programs in path.
func installBy(t *testing.T, i Installer, argv []string, path, dir, index string) ([]installedPackage, string, []string, error) {
	t.Helper()
	env := []string{"HOME=" + t.TempDir(), "PATH=" + path}
	for _, m := range []map[string]string{PackageEnv(), i.Environ(index)} {
		for name, value := range m {
			env = append(env, name+"="+strings.ReplaceAll(value, language.PackageDir, dir))
		}
	}
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, t.TempDir()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return parseInstalled(stdout.String()), stderr.String(), env, err
}

// wheel returns a package of Python with one module that says its version.
func wheel(t *testing.T, name, version string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	info := name + "-" + version + ".dist-info/"
	var record strings.Builder
	for path, text := range map[string]string{
		name + ".py":              "version = '" + version + "'\ndef main(): print('hello from ' + version)\n",
		info + "METADATA":         "Metadata-Version: 2.1\nName: " + name + "\nVersion: " + version + "\n",
		info + "WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		info + "entry_points.txt": "[console_scripts]\n" + name + "-hello = " + name + ":main\n",
	} {
		f, err := z.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(f, text)
		fmt.Fprintf(&record, "%s,,\n", path)
	}
	f, err := z.Create(info + "RECORD")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(f, "%s%sRECORD,,\n", record.String(), info)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestInstallPip installs from a simple index, twice.
func TestInstallPip(t *testing.T) {
	t.Parallel()
	need(t, "pip", "/usr/bin/python3", "-m", "pip", "--version")
	wheels := map[string][]byte{}
	for _, version := range []string{"1.0", "2.0"} {
		wheels["gbxhello-"+version+"-py3-none-any.whl"] = wheel(t, "gbxhello", version)
	}
	index := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if data, ok := wheels[filepath.Base(r.URL.Path)]; ok {
			w.Write(data)
			return
		}
		if r.URL.Path != "/simple/gbxhello/" {
			http.NotFound(w, r)
			return
		}
		for name := range wheels {
			fmt.Fprintf(w, "<a href='/files/%s'>%s</a>\n", name, name)
		}
	}))
	defer index.Close()
	pip, err := FindInstaller("pip")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		asked string
		want  installedPackage
	}{
		{"gbxhello==1.0", installedPackage{"gbxhello", "1.0", true}},
		{"gbxhello", installedPackage{"gbxhello", "1.0", false}},
		{"gbxhello==2.0", installedPackage{"gbxhello", "2.0", true}},
	} {
		got, stderr, env, err := install(t, pip, dir, index.URL+"/simple", c.asked)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.asked, err, stderr)
		}
		if d := cmp.Diff([]installedPackage{c.want}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.asked, d)
		}
		for _, argv := range [][]string{{"python3", "-c", "import gbxhello; print('hello from ' + gbxhello.version)"}, {dir + "/bin/gbxhello-hello"}} {
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			if argv[0] == "python3" {
				cmd.Path = "/usr/bin/python3"
			}
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello from "+c.want.Version+"\n" {
				t.Errorf("%v: %s, %v", argv, out, err)
			}
		}
	}
	if _, stderr, _, err := install(t, pip, dir, index.URL+"/simple", "gbxnone"); err == nil || !strings.Contains(stderr, "gbxnone") {
		t.Errorf("a package that there is not: %v, %s", err, stderr)
	}
	// A file needs no index.
	file := filepath.Join(t.TempDir(), "gbxhello-1.0-py3-none-any.whl")
	if err := os.WriteFile(file, wheels["gbxhello-1.0-py3-none-any.whl"], 0o600); err != nil {
		t.Fatal(err)
	}
	got, stderr, _, err := install(t, pip, t.TempDir(), "http://127.0.0.1:1/none", file)
	if err != nil || len(got) != 1 || !got[0].New {
		t.Errorf("a file: %+v, %v\n%s", got, err, stderr)
	}
}

// npmPackage returns a package of npm with one module that says its version.
func npmPackage(t *testing.T, name, version string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	a := tar.NewWriter(z)
	for path, text := range map[string]string{
		"package/package.json": `{"name":"` + name + `","version":"` + version + `","main":"main.js","bin":{"` + name + `":"cli.js"}}`,
		"package/main.js":      "module.exports = '" + version + "'\n",
		"package/cli.js":       "#!/usr/bin/env node\nconsole.log(require('./main'))\n",
	} {
		if err := a.WriteHeader(&tar.Header{Name: path, Size: int64(len(text)), Mode: 0o755}); err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(a, text)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// npmHello is what npmRegistry has, as 1.0.0 and 2.0.0.
const npmHello = "gbx-hello"

// npmRegistry returns the address of a registry.
func npmRegistry(t *testing.T) string {
	t.Helper()
	const name = npmHello
	tarballs := map[string][]byte{"1.0.0": npmPackage(t, name, "1.0.0"), "2.0.0": npmPackage(t, name, "2.0.0")}
	registry := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if v, ok := strings.CutPrefix(r.URL.Path, "/tarball/"); ok {
			w.Write(tarballs[v])
			return
		}
		if r.URL.Path != "/"+name {
			http.NotFound(w, r)
			return
		}
		versions := map[string]any{}
		for v, data := range tarballs {
			sum := sha1.Sum(data)
			versions[v] = map[string]any{"name": name, "version": v, "bin": map[string]string{name: "cli.js"},
				"dist": map[string]string{"tarball": "http://" + r.Host + "/tarball/" + v, "shasum": hex.EncodeToString(sum[:])}}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"name": name, "dist-tags": map[string]string{"latest": "2.0.0"}, "versions": versions})
	}))
	t.Cleanup(registry.Close)
	return registry.URL
}

// TestInstallNPM installs from a registry, twice.
func TestInstallNPM(t *testing.T) {
	t.Parallel()
	need(t, "npm", "npm", "--version")
	testInstallNPM(t, 0, "/usr/local/bin:/usr/bin:/bin", []string{"node", "-p"}, nil)
}

// TestInstallBun does it where only Bun is, which GLOVEBOX_BUN names.
func TestInstallBun(t *testing.T) {
	t.Parallel()
	bun := os.Getenv("GLOVEBOX_BUN")
	need(t, "interpreters", bun, "--version")
	dir := t.TempDir()
	if err := os.Symlink(bun, filepath.Join(dir, "bun")); err != nil {
		t.Fatal(err)
	}
	bun = filepath.Join(dir, "bun")
	testInstallNPM(t, 1, dir, []string{bun, "-p"}, []string{bun})
}

// testInstallNPM installs by the installer's argv of that number, where path has
// the programs. eval evaluates JavaScript, and by runs a program of a package.
func testInstallNPM(t *testing.T, number int, path string, eval, by []string) {
	const name = npmHello
	registry := npmRegistry(t)
	npm, err := FindInstaller("npm")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		asked string
		want  installedPackage
	}{
		{name + "@1.0.0", installedPackage{name, "1.0.0", true}},
		{name + "@1.0.0", installedPackage{name, "1.0.0", false}},
		{name, installedPackage{name, "2.0.0", true}},
	} {
		argv := npm.Argvs([]string{c.asked})[number]
		argv[0] = eval[0]
		got, stderr, env, err := installBy(t, npm, argv, path, dir, registry)
		if err != nil {
			t.Fatalf("%s: %v\n%s", c.asked, err, stderr)
		}
		if d := cmp.Diff([]installedPackage{c.want}, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.asked, d)
		}
		for _, argv := range [][]string{append(eval, "require('"+name+"')"), append(by, dir+"/bin/"+name)} {
			cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
			cmd.Env = env
			if out, err := cmd.CombinedOutput(); err != nil || string(out) != c.want.Version+"\n" {
				t.Errorf("%v: %s, %v", argv, out, err)
			}
		}
	}
	var listers [][]string
	for _, l := range Listers() {
		if l.Installer == "npm" {
			listers = append(listers, l.Argv)
		}
	}
	list := exec.CommandContext(t.Context(), eval[0], listers[number][1:]...)
	list.Env = []string{"NODE_PATH=" + dir + "/lib/node_modules"}
	if out, err := list.CombinedOutput(); err != nil || string(out) != name+" 2.0.0 user\n" {
		t.Errorf("the list is %s, %v", out, err)
	}
	argv := npm.Argvs([]string{"gbx-none"})[number]
	argv[0] = eval[0]
	if _, stderr, _, err := installBy(t, npm, argv, path, dir, registry); err == nil || stderr == "" {
		t.Errorf("a package that there is not: %v, %s", err, stderr)
	}
}

// TestInstallApt installs from a repository of Debian packages, as nobody in
// particular.
func TestInstallApt(t *testing.T) {
	t.Parallel()
	need(t, "apt", "apt-get", "--version")
	need(t, "apt", "dpkg-deb", "--version")
	repo, tree := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		"DEBIAN/control":    "Package: gbx-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nDescription: a test\n",
		"usr/bin/gbx-hello": "#!/bin/sh\necho hello $1\n",
	} {
		name := filepath.Join(tree, path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	deb := filepath.Join(repo, "gbx-hello_1.0_all.deb")
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "--root-owner-group", "--build", tree, deb).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	index := fmt.Sprintf("Package: gbx-hello\nVersion: 1.0\nArchitecture: all\nMaintainer: a <a@example.com>\nFilename: ./%s\nSize: %d\nSHA256: %x\nDescription: a test\n",
		filepath.Base(deb), len(data), sha256.Sum256(data))
	if err := os.WriteFile(filepath.Join(repo, "Packages"), []byte(index), 0o600); err != nil {
		t.Fatal(err)
	}
	apt, err := FindInstaller("apt")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	got, stderr, env, err := install(t, apt, dir, "deb [trusted=yes] copy:"+repo+" ./", "gbx-hello")
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	if d := cmp.Diff([]installedPackage{{"gbx-hello", "1.0", true}}, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	cmd := exec.CommandContext(t.Context(), dir+"/bin/gbx-hello", "you")
	cmd.Env = env
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "hello you\n" {
		t.Errorf("%s, %v", out, err)
	}
}

func TestCheckPackages(t *testing.T) {
	for _, p := range []string{"numpy", "numpy==2.1", "pandas[excel]>=2", "@scope/name@1", "/data/a.whl", "jq=1.6-2"} {
		if err := CheckPackages([]string{p}); err != nil {
			t.Errorf("%q: %v", p, err)
		}
	}
	for _, p := range []string{"", "-r", "--index-url=http://x", " a", "a\nb", "a\x00", strings.Repeat("a", maxPackageName+1)} {
		if err := CheckPackages([]string{p}); err == nil {
			t.Errorf("%q is taken", p)
		}
	}
	if CheckPackages(nil) == nil || CheckPackages(make([]string, maxPackages+1)) == nil {
		t.Error("none or too many are taken")
	}
}

func TestInstallerNetwork(t *testing.T) {
	for _, c := range []struct {
		name, index string
		packages    []string
		want        string
	}{
		{"pip", "", []string{"numpy"}, "pypi.org:443,files.pythonhosted.org:443"},
		{"pip", "", []string{"/data/a.whl"}, "none"},
		{"pip", "", []string{"/data/a.whl", "b"}, "pypi.org:443,files.pythonhosted.org:443"},
		{"pip", "https://mirror.example.com/simple", []string{"a"}, "mirror.example.com:443"},
		{"pip", "http://10.0.0.1:8080/simple", []string{"a"}, "10.0.0.1:8080"},
		{"pip", "file:///data/index", []string{"a"}, "none"},
		{"npm", "", []string{"a"}, "registry.npmjs.org:443"},
		{"apt", "deb http://mirror.example.com/debian x main", []string{"a"}, "mirror.example.com:80"},
		{"apt", "deb [trusted=yes] copy:/data/repo ./", []string{"a"}, "none"},
	} {
		i, err := FindInstaller(c.name)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := i.Network(c.index, c.packages); err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v", c, got, err)
		}
	}
}
