package contexts_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/contexts"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guest/picture/picturetest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPreviews has a run show pictures, and asks for those in files.
func TestPreviews(t *testing.T) {
	h := newEvalHost(t, "python3")
	dir, err := os.MkdirTemp("", "pictures")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	small := picturetest.Painted(t, 30, 20, 0)
	for name, data := range map[string][]byte{
		"small.png": small, "wide.png": picturetest.Painted(t, 3136, 10, 0), "bomb.png": picturetest.BigPNG(t, 6400, 6500/guesttest.RaceFactor, 16, 6, 4, 0), "none.png": []byte("x"),
		"broken.png": picturetest.Painted(t, 3136, 10, 0)[:60], "small.jpeg": small,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []struct{ name, mime, why string }{ // why "" and no type is as it is
		{"small.png", "", ""},
		{"wide.png", "image/png", ""},
		{"bomb.png", "", "more than 32 MiB"},
		{"none.png", "", "no picture"},
		{"broken.png", "", "it is broken"},
	}
	code := "class P:\n    def __init__(self, n): self.n = n\n    def _repr_png_(self): return open(self.n, 'rb').read()\n"
	for _, w := range want {
		code += fmt.Sprintf("display(P(%q))\n", filepath.Join(dir, w.name))
	}
	for _, asked := range []bool{true, false} {
		r := gather(t, h.eval(&guestapi.ExecuteRequest{Code: code + "print('end')\n1", TimeoutMillis: 60000, Previews: asked}), nil)
		if r.end.Status != guestapi.EndOK || r.stdout != "end\n" || len(r.results) != len(want)+1 {
			t.Fatalf("%+v, %d results, stdout %q, %+v", r.end, len(r.results), r.stdout, r.err)
		}
		for i, w := range want {
			var text string
			if err := json.Unmarshal(r.results[i].Data["image/png"], &text); err != nil || text == "" {
				t.Errorf("%s: the picture itself is not there: %v", w.name, err)
			}
			p, ok := r.results[i].Previews["image/png"]
			if ok != (asked && (w.mime != "" || w.why != "")) || p.Data.PictureType() != w.mime && asked || !strings.Contains(p.Why, w.why) && asked {
				t.Errorf("%s, asked %v: %v, %d bytes of %q, %q", w.name, asked, ok, len(p.Data), p.Data.PictureType(), p.Why)
			}
		}
	}
	for _, w := range append(want, struct{ name, mime, why string }{"small.jpeg", "", "no picture of the type image/jpeg"}) {
		mime := "image/" + strings.TrimPrefix(filepath.Ext(w.name), ".")
		data, err := h.Preview(t.Context(), filepath.Join(dir, w.name), mime, guestapi.FileOptions{})
		switch {
		case w.why != "":
			guesttest.WantKind(t, err, sandbox.Invalid, w.why)
		case err != nil || sandbox.PictureType(data) != "image/png":
			t.Errorf("%s: %d bytes, %v", w.name, len(data), err)
		case w.mime == "" && !bytes.Equal(data, small):
			t.Errorf("%s: it is another picture", w.name)
		}
	}
	_, err = h.Preview(t.Context(), filepath.Join(dir, "absent.png"), "image/png", guestapi.FileOptions{})
	guesttest.WantKind(t, err, sandbox.NotFound, "")
	_, err = h.Preview(t.Context(), "/dev/zero", "image/png", guestapi.FileOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "not a regular file")
}

// TestPreviewEnds stops a run whose pictures take long, and one that shows more
// pictures than are shrunk.
func TestPreviewEnds(t *testing.T) {
	h := newEvalHost(t, "python3")
	r := gather(t, h.eval(&guestapi.ExecuteRequest{TimeoutMillis: 60000, Previews: true, Code: fmt.Sprintf(`
class P:
    def _repr_png_(self): return data
import zlib, struct
def chunk(n, d): return struct.pack('>I', len(d)) + n + d + struct.pack('>I', zlib.crc32(n + d))
data = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1600, 1, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes(1601))) + chunk(b'IEND', b'')
for i in range(%d): display(P())
`, contexts.MaxPreviews+2)}), nil)
	made := 0
	for _, res := range r.results {
		if len(res.Previews["image/png"].Data) > 0 {
			made++
		}
	}
	if last := r.results[len(r.results)-1].Previews["image/png"]; r.end.Status != guestapi.EndOK || made == 0 || made > contexts.MaxPreviews || !strings.Contains(last.Why, "no more are shrunk") {
		t.Errorf("%+v, %d previews, %+v", r.end, made, last)
	}
}
