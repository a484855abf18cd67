package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// bombScript writes bomb.png: 6400 x 6500 pixels of 16 bits a channel in some
// hundred kilobytes, whose decoder takes 340 MB.
const bombScript = `import struct, zlib
def chunk(n, d): return struct.pack('>I', len(d)) + n + d + struct.pack('>I', zlib.crc32(n + d))
z, row = zlib.compressobj(9), bytes(1 + 6400*8)
body = b''.join(z.compress(row) for _ in range(6500)) + z.flush()
bomb = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 6400, 6500, 16, 6, 0, 0, 0)) + chunk(b'IDAT', body) + chunk(b'IEND', b'')
open('bomb.png', 'wb').write(bomb)
`

// A workDirGuest has the working directory elsewhere, as boxes of the fake driver
// do. One of an earlier version makes no previews.
type workDirGuest struct {
	guestlink.Guest
	dir     *string
	earlier bool
}

func (g workDirGuest) path(p string) string { return *g.dir + strings.TrimPrefix(p, sandbox.WorkDir) }

func (g workDirGuest) Execute(ctx context.Context, user string, req *guestapi.ExecuteRequest, room guestapi.LineRoom) (guestlink.Events, error) {
	asked := *req
	if g.earlier {
		asked.Previews = false // it does not know the field
	}
	return g.Guest.Execute(ctx, user, &asked, room)
}

func (g workDirGuest) Preview(ctx context.Context, path, mime string, opts guestapi.FileOptions) ([]byte, error) {
	if g.earlier {
		return nil, sandbox.Errorf(sandbox.Unsupported, "preview picture: no such procedure: /previews")
	}
	return g.Guest.Preview(ctx, g.path(path), mime, opts)
}

func (g workDirGuest) Read(ctx context.Context, path string, offset, length int64, opts guestapi.FileOptions) (io.ReadCloser, int64, error) {
	return g.Guest.Read(ctx, g.path(path), offset, length, opts)
}

// TestPicturesAreDecodedInTheSandbox has runs show and leave a picture that costs
// its decoder much, and looks at them again and again. This process takes no more
// memory than the picture's bytes.
func TestPicturesAreDecodedInTheSandbox(t *testing.T) {
	needInterpreter(t, "python3")
	dir := t.TempDir()
	var wide bytes.Buffer
	if err := png.Encode(&wide, image.NewGray(image.Rect(0, 0, 3136, 10))); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "wide.png"), wide.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	make := exec.Command("python3", "-c", bombScript)
	make.Dir = dir
	if out, err := make.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, earlier := range []bool{false, true} {
		t.Run(fmt.Sprintf("Earlier=%v", earlier), func(t *testing.T) {
			var work string
			e := openWorkspaces(t, func(o *Options) {
				o.dialGuest = func(b driver.Box) guestlink.Guest { return workDirGuest{guestlink.Dial(b), &work, earlier} }
			})
			s := e.mustCreate(t, sandbox.CreateRequest{Workspace: "w"})
			work = fakeDir(t, e, s)
			const show = "class P:\n    def __init__(self, n): self.n = n\n    def _repr_png_(self): return open(self.n, 'rb').read()\n"
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			code := show + fmt.Sprintf("import shutil\nfor n in 'bomb.png', 'wide.png': shutil.copy(%q + n, '.')\nopen('none.png', 'wb').write(b'x'*2000); open('large.gif', 'wb').write(bytes(3 << 20))\n"+
				"display(P('bomb.png')); display(P('wide.png'))", dir+"/")
			r := e.mustWait(t, e.mustStart(t, sandbox.RunRequest{SandboxID: s.ID, Code: code, Context: sandbox.DefaultContext}).ID)
			checkVerdict(t, r, sandbox.OK, "")
			var res sandbox.Results
			for range 6 {
				res = e.mustResults(t, r.ID)
			}
			runtime.ReadMemStats(&after)
			// A tenth of one decoding: the six readings above are of 3 MB each.
			if got := after.TotalAlloc - before.TotalAlloc; got > 34e6 {
				t.Errorf("the pictures took %d bytes of the server's", got)
			}
			if len(res.Results) != 2 {
				t.Fatalf("%d results", len(res.Results))
			}
			for i, want := range []string{"takes more than 32 MiB", ""} {
				var text string
				p, ok := res.Results[i].Previews["image/png"]
				if err := json.Unmarshal(res.Results[i].Data["image/png"], &text); err != nil || text == "" || ok == earlier {
					t.Errorf("picture %d: %v, preview %v", i, err, ok)
				}
				if ok && (!strings.Contains(p.Why, want) || (p.Why == "") != (p.MIME == "image/png" && len(p.Data) > 0)) {
					t.Errorf("preview %d: %q, %q, %d bytes", i, p.MIME, p.Why, len(p.Data))
				}
			}
			why := map[string]string{"bomb.png": "takes more than 32 MiB", "wide.png": "", "none.png": "it is no picture", "large.gif": "it is no picture"}
			if earlier {
				why["bomb.png"], why["large.gif"] = "", "it has 3 MiB, and its sandbox cannot shrink it to 1 MiB"
			}
			for name, want := range why {
				p, ok := res.Files[name]
				if !ok || !strings.Contains(p.Why, want) || (want == "") != (p.Data.PictureType() == "image/png") {
					t.Errorf("%s: %v, %q, %d bytes; want %q", name, ok, p.Why, len(p.Data), want)
				}
			}
			wide, err := res.Files["wide.png"].Data.Decode()
			if err != nil {
				t.Fatal(err)
			}
			if cfg, err := png.DecodeConfig(bytes.NewReader(wide)); err != nil || (cfg.Width == 3136) != earlier {
				t.Errorf("wide.png is %d pixels wide, %v", cfg.Width, err)
			}
			// They are the run's, whatever becomes of the sandbox and its files.
			stored, err := e.store.Run(t.Context(), r.ID)
			if err != nil || stored.KeptBytes < int64(len(res.Files["wide.png"].Data)) {
				t.Errorf("%d bytes are counted, %v", stored.KeptBytes, err)
			}
			if err := e.Stop(t.Context(), alice, s.ID); err != nil {
				t.Fatal(err)
			}
			if again := e.mustResults(t, r.ID); again.Files["wide.png"].Data != res.Files["wide.png"].Data {
				t.Error("they are gone with the sandbox")
			}
		})
	}
}
