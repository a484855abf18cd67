package imagebuild

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestParse(t *testing.T) {
	steps, err := parse("# syntax=docker/dockerfile:1\n# escape=\\\n\nARG A=1\r\nfrom base AS x\n" +
		"RUN\techo 1 && \\\n  # not this\n\n  echo \"2\" \\   \n  three\n" +
		"COPY --chown=a:b --chmod=644 [\"a b\", \"/c/\"]\n" +
		"RUN [ -e /x ] || echo '<<<' $((1<<2))\nCMD [\"x\", \"y\"]\nENTRYPOINT last \\")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, i := range steps {
		s := itoa(i.line) + " " + i.String()
		if i.list != nil {
			s += " = " + strings.Join(i.list, "|")
		}
		got = append(got, s)
	}
	want := []string{
		"4 ARG A=1", "5 FROM base AS x", `6 RUN echo 1 &&   echo "2"   three`,
		`11 COPY ["a b", "/c/"] = a b|/c/`, "12 RUN [ -e /x ] || echo '<<<' $((1<<2))", `13 CMD ["x", "y"] = x|y`, "14 ENTRYPOINT last",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"chown": "a:b", "chmod": "644"}, steps[3].flags); d != "" {
		t.Errorf("flags: -want +got\n%s", d)
	}
	if got := steps[6].argv(); !slices.Equal(got, []string{"/bin/sh", "-c", "last"}) {
		t.Errorf("the shell's form runs %q", got)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                    "no FROM",
		"ARG A":                               "no FROM",
		"RUN x\nFROM a":                       "Dockerfile:1 RUN: is before the first FROM",
		"FROM a\nADD x y":                     "Dockerfile:2: the instruction ADD is not supported",
		"FROM a\nHEALTHCHECK NONE":            "HEALTHCHECK",
		"FROM a\nONBUILD RUN x":               "ONBUILD",
		"FROM --platform=linux/arm64 a":       "--platform",
		"FROM a\nCOPY --from=b x y":           "--from",
		"FROM a\nRUN --mount=type=cache true": "--mount",
		"FROM a\nFROM b":                      "the second FROM",
		"FROM a\nRUN":                         "has no arguments",
		"FROM a\nRUN <<EOF\nx\nEOF":           "here-documents",
		"FROM a\nRUN cat <<-'END' > /x":       "here-documents",
		"# escape=`\nFROM a":                  "escape",
		strings.Repeat("#", maxDockerfile+1):  "the maximum is",
		"FROM a" + strings.Repeat("\nRUN x", maxInstructions): "more than 1000",
	} {
		if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func TestExpand(t *testing.T) {
	vars := map[string]string{"A": "1", "B": "x y", "E": "", "N_2": "n"}
	values := func() variables {
		room := 100
		return variables{func(name string) (string, bool) { v, ok := vars[name]; return v, ok }, &room}
	}
	for text, want := range map[string]string{
		`$A${A}-$B`: "11-x y", `"$A" '$A'`: "1 $A", `\$A "\$A" "\n"`: `$A $A \n`, "$N_2$": "n$",
		"${A:-z}${E:-z}${E-z}${U-z}${U:-z}": "1zzz", "${A:+z}${E:+z}${E+z}${U+z}": "zz",
		"${U:-${A}b}": "1b", `${U:-"a}b"}`: "a}b", "$": "$", "$1": "$1", "": "", "$U|": "|",
	} {
		if got, err := expand(text, values()); got != want || err != nil {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"${", "${A", "${}", "${A:?x}", "${A/x/y}", `"x`, `'x`, "${A:-" + strings.Repeat("${A:-", 50), "${A:-", strings.Repeat("$A", 101), strings.Repeat("${B}", 34), strings.Repeat("${B:-x}", 34)} {
		if got, err := expand(text, values()); err == nil {
			t.Errorf("%.40s: %q, want an error", text, got)
		}
	}
}

func TestPairs(t *testing.T) {
	room := 0
	none := variables{func(string) (string, bool) { return "", false }, &room}
	for text, want := range map[string]string{
		`a=b c="d e" f='g h' i=j\ k`: "a=b|c=d e|f=g h|i=j k", "old the value": "old=the value", `a= b=""`: "a=|b=",
		`a="x=y"`: "a=x=y", `"with space"=v`: "with space=v",
	} {
		list, err := pairs(text, none)
		var got []string
		for _, p := range list {
			got = append(got, p[0]+"="+p[1])
		}
		if s := strings.Join(got, "|"); s != want || err != nil {
			t.Errorf("%s: %s, %v; want %s", text, s, err, want)
		}
	}
	for _, text := range []string{"a", "a=b c", "=x", `a="b`} {
		if _, err := pairs(text, none); err == nil {
			t.Errorf("%s was taken", text)
		}
	}
}

// FuzzParse has nothing break on what is no Dockerfile.
func FuzzParse(f *testing.F) {
	f.Add("FROM a\nRUN x \\\n y\nENV a=${b:-'c'} \"d")
	f.Fuzz(func(t *testing.T, text string) {
		steps, err := parse(text)
		if err != nil {
			return
		}
		for _, i := range steps {
			_ = i.String()
			room := 1000
			_, _ = pairs(i.text, variables{func(string) (string, bool) { return "$", true }, &room})
		}
	})
}

// files makes files in a directory: a name with a slash at its end is a
// directory, and a text that begins with -> a link.
func files(t *testing.T, all map[string]string) *directory {
	t.Helper()
	dir := t.TempDir()
	for name, text := range all {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			if err = os.Symlink(target, path); err == nil {
				_, err = os.Readlink(path)
			}
			if err != nil && runtime.GOOS == "windows" { // which allows it not everybody
				t.Skipf("no links here: %v", err)
			}
		} else {
			err = os.WriteFile(path, []byte(text), 0o640)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	d, err := openDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.close() })
	return d
}

// packed returns the names in an archive, those of links with their targets.
func packed(t *testing.T, d *directory, sources ...string) string {
	t.Helper()
	var b bytes.Buffer
	if err := d.pack(&b, sources, -1); err != nil {
		t.Fatal(err)
	}
	return names(t, &b)
}

func names(t *testing.T, archive io.Reader) string {
	t.Helper()
	var names []string
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			return strings.Join(names, " ")
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Linkname != "" {
			h.Name += "->" + h.Linkname
		}
		names = append(names, h.Name)
	}
}

func TestCopy(t *testing.T) {
	d := files(t, map[string]string{
		"a.txt": "a", "b.txt": "b", "dir/x": "x", "dir/deep/y": "y", "dir/link": "->x", "dir/out": "->/etc/passwd",
		"node_modules/big": "", "keep/no": "", "keep/yes": "",
		".dockerignore": "# not these\nnode_modules\n*/deep\nkeep/*\n!keep/yes\n",
	})
	for sources, want := range map[string]string{
		"dir": "link->x out->/etc/passwd x", "*.txt": "a.txt b.txt", "/dir/x": "x", "keep": "yes",
		".": ".dockerignore a.txt b.txt dir/ dir/link->x dir/out->/etc/passwd dir/x keep/ keep/yes",
	} {
		list, err := d.sources([]string{sources})
		if err != nil {
			t.Errorf("%s: %v", sources, err)
			continue
		}
		if got := packed(t, d, list...); got != want {
			t.Errorf("%s: %s\nwant %s", sources, got, want)
		}
	}
	for source, kind := range map[string]sandbox.Kind{
		"../x": sandbox.Invalid, "dir/../../x": sandbox.Invalid, "none*": sandbox.NotFound, "[": sandbox.Invalid,
	} {
		if list, err := d.sources([]string{source}); !errors.Is(err, kind) {
			t.Errorf("%s: %v, %v", source, list, err)
		}
	}
	// A link that is named leads somewhere, but not out.
	if err := d.pack(io.Discard, []string{"dir/out"}, -1); err == nil {
		t.Error("a file of the machine was packed")
	}
	if err := d.pack(io.Discard, []string{"none"}, -1); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("what is not there: %v", err)
	}
}

// TestPack has what an engine is given to build from.
func TestPack(t *testing.T) {
	d := files(t, map[string]string{
		"Dockerfile": "FROM scratch\n", "kept": "", "dir/x": "", "dir/secret": "", ".git/config": "",
		".dockerignore": "Dockerfile\n.*\n**/secret\n",
	})
	r, w := io.Pipe()
	go func() { w.CloseWithError(Pack(w, d.root.Name())) }()
	if got, want := names(t, r), ".dockerignore Dockerfile dir/ dir/x kept"; got != want {
		t.Errorf("an engine is given %s\nwant %s", got, want)
	}
	for dir, want := range map[string]string{t.TempDir(): "has no Dockerfile", filepath.Join(t.TempDir(), "none"): "none"} {
		if err := Pack(io.Discard, dir); !errors.Is(err, sandbox.NotFound) || !strings.Contains(err.Error(), want) || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v", dir, err)
		}
	}
}
