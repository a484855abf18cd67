package gvisor_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// listTree lists what an image has, but for what each sandbox has its own of:
// names, kinds, owners, modes, links, times and contents; busybox itself is the
// same. Directories' times are not all the layer's to tell.
const listTree = `cd / && find . \( -path ./proc -o -path ./dev -o -path ./sys -o -path ./run -o -path ./data -o -path ./.glovebox -o -path ./bin \) -prune -o -print0 | sort -z |
	while read -r -d '' f; do
		[ -d "$f" ] && [ ! -L "$f" ] && stat -c '%n %u:%g %a %F' "$f" || stat -c '%n %u:%g %a %F %h %s %Y %N' "$f"
		[ -f "$f" ] && [ ! -L "$f" ] && md5sum < "$f"
	done; true`

// changeTree does to an image what programs do that install things, and more.
const changeTree = `set -e
cd /base
echo changed >> file
chmod 4711 mode; chown 5:6 owner; touch -d @1000 time
rm gone; rm -r dir-gone; rm -r dir-again; mkdir dir-again; echo new > dir-again/new
rm -r dir-to-file; echo f > dir-to-file
rm file-to-dir; mkdir file-to-dir; echo d > file-to-dir/d
rm link; ln -s elsewhere link
ln linked another; ln -s /no/where dangling; mkfifo fifo
mv moved from; mv dir-moved dir-there
mkdir -p deep/er/est; echo x > deep/er/est/x; chmod 2770 deep; chown 7:8 deep
touch empty; printf 'a\nb' > "$(printf 'new\nline')"; echo n > "$(printf 'not\377utf8')"
long=$(printf '%0200d' 1); echo l > "$long"; ln -s "$long/$long" long-link
echo w > .wh-not; yes | head -c 3000000 > large; truncate -s 5000000 hole
echo 127.0.0.1 x >> /etc/hosts; echo more >> /etc/passwd`

// changeableImage returns an image with the files that changeTree changes.
func changeableImage(t *testing.T) string {
	t.Helper()
	reg := imagetest.New(t)
	var files []imagetest.File
	for _, n := range []string{
		"base/", "base/file", "base/mode", "base/owner", "base/time", "base/gone", "base/dir-gone/", "base/dir-gone/x", "base/dir-again/",
		"base/dir-again/old", "base/dir-to-file/", "base/dir-to-file/x", "base/file-to-dir", "base/linked", "base/moved", "base/dir-moved/",
		"base/dir-moved/x", "base/untouched",
	} {
		f := imagetest.File{Name: n}
		if !strings.HasSuffix(n, "/") {
			f.Content = n
		}
		files = append(files, f)
	}
	files = append(files, imagetest.File{Name: "base/link", Link: "file"})
	return reg.Push(t, "base", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t), imagetest.Layer(t, files...)))
}

// TestImageLayer: the image of a box, with a layer of the box's changes, has the files of
// the box.
func TestImageLayer(t *testing.T) {
	ref := changeableImage(t)
	d := openImages(t, t.TempDir())
	box := launchImage(t, d, ref)
	guest := guestapi.NewClient(box.Box.Dial)
	t.Cleanup(guest.Close)
	if _, err := guest.Layer(t.Context()); err == nil {
		t.Error("a layer of what was not marked")
	}
	if err := guest.MarkLayer(t.Context()); err != nil {
		t.Fatal(err)
	}
	box.MustRoot(t, changeTree)
	extend := func(base, name string) int64 {
		t.Helper()
		layer, err := guest.Layer(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer layer.Close()
		counted := &countingReader{r: layer}
		if _, err := d.ExtendImage(t.Context(), driver.ImageExtension{Base: base, Name: name, Layer: counted}); err != nil {
			t.Fatal(err)
		}
		return counted.n
	}
	if n := extend(ref, "changed"); n < 8_000_000 || n > 9_000_000 {
		t.Errorf("the layer has %d bytes: it should have what changed, and no more", n)
	}
	want := box.MustRoot(t, listTree)
	if !strings.Contains(want, "./base/untouched") {
		t.Fatalf("the list is not one:\n%s", want)
	}
	got := launchImage(t, d, "changed").MustRoot(t, listTree)
	// What tells of the machine is nobody's but the sandbox's.
	if d := cmp.Diff(withoutFile(want, "./etc/hosts"), withoutFile(got, "./etc/hosts")); d != "" {
		t.Errorf("a box of the layer, -want +got\n%s", d)
	}
	// Nobody but root may, and what is not an archive is said to be none.
	if r, err := box.Run(t.Context(), drivertest.Sh("true")); err != nil {
		t.Errorf("the box is broken: %v, %v", r, err)
	}
	if err := guest.Unpack(t.Context(), strings.NewReader(strings.Repeat("no", 1000)), guestapi.UnpackOptions{Path: "/x"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("what is no archive: %v", err)
	}
	if err := guest.Unpack(t.Context(), strings.NewReader(""), guestapi.UnpackOptions{Path: "/x", Owner: "ghost"}); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("an owner who is not there: %v", err)
	}
}

// withoutFile takes a file's lines out of a list.
func withoutFile(list, name string) string {
	before, rest, ok := strings.Cut(list, name+" ")
	if !ok {
		return list
	}
	_, rest, _ = strings.Cut(rest, "\n") // its own
	_, rest, _ = strings.Cut(rest, "\n") // its digest
	return before + rest
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
