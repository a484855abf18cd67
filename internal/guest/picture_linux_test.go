package guest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// painted returns a picture as PNG; noise is a seed, or 0 for one colour.
func painted(t testing.TB, w, h int, noise uint64) []byte {
	t.Helper()
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	if noise > 0 {
		rng := rand.New(rand.NewPCG(noise, 1))
		for i := range m.Pix {
			m.Pix[i] = byte(rng.Uint32())
		}
	} else {
		draw.Draw(m, m.Bounds(), image.NewUniform(color.Gray{0x80}), image.Point{}, draw.Src)
	}
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// bigPNG returns a PNG of zeros without holding its pixels. Of one that is
// larger than decoders are given it has the beginning.
func bigPNG(t testing.TB, w, h, depth, colourType, channels, interlace int) []byte {
	t.Helper()
	var out, body bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		binary.Write(&out, binary.BigEndian, uint32(len(data)))
		out.WriteString(name)
		out.Write(data)
		binary.Write(&out, binary.BigEndian, crc32.ChecksumIEEE(append([]byte(name), data...)))
	}
	header := binary.BigEndian.AppendUint32(nil, uint32(w))
	header = binary.BigEndian.AppendUint32(header, uint32(h))
	chunk("IHDR", append(header, byte(depth), byte(colourType), 0, 0, byte(interlace)))
	if colourType == 3 {
		chunk("PLTE", make([]byte, 6))
	}
	z := zlib.NewWriter(&body)
	passes := [][4]int{{0, 0, 1, 1}} // where they begin, and their steps
	if interlace != 0 {
		passes = [][4]int{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}}
	}
	for _, p := range passes {
		row := make([]byte, 1+(w-p[0]+p[2]-1)/p[2]*channels*depth/8)
		for range min((h-p[1]+p[3]-1)/p[3], maxPictureMemory/len(row)) {
			z.Write(row)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	chunk("IDAT", body.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// jpegStart returns a JPEG to the beginning of its first scan, and no more.
func jpegStart(marker byte, w, h int, factors ...byte) []byte {
	b := []byte{0xff, 0xd8, 0xff, marker, 0, byte(8 + 3*len(factors)), 8, byte(h >> 8), byte(h), byte(w >> 8), byte(w), byte(len(factors))}
	for i, f := range factors {
		b = append(b, byte(i+1), f, 0)
	}
	return append(b, 0xff, 0xda, 0, 2)
}

// manyFrames returns a GIF of n frames.
func manyFrames(t testing.TB, w, h, n int) []byte {
	t.Helper()
	g := &gif.GIF{}
	frame := image.NewPaletted(image.Rect(0, 0, w, h), color.Palette{color.Black, color.White})
	for range n {
		g.Image, g.Delay = append(g.Image, frame), append(g.Delay, 1)
	}
	var out bytes.Buffer
	if err := gif.EncodeAll(&out, g); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// webpStart returns the beginning of a WebP without loss.
func webpStart(w, h int) []byte {
	b := []byte("RIFF\x40\x00\x00\x00WEBPVP8L\x34\x00\x00\x00\x2f")
	b = binary.LittleEndian.AppendUint32(b, uint32(w-1)|uint32(h-1)<<14)
	return append(b, make([]byte, 64)...)
}

func TestShrinkPicture(t *testing.T) {
	var photo bytes.Buffer
	if err := jpeg.Encode(&photo, image.NewYCbCr(image.Rect(0, 0, 30, 20), image.YCbCrSubsampleRatio420), nil); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, mime string
		data       []byte
		fits       bool
		want       string // its type
		w, h       int
	}{
		{"Small", "image/png", painted(t, 30, 20, 0), true, "image/png", 30, 20},
		{"JPEG", "image/jpeg", photo.Bytes(), true, "image/png", 30, 20},
		{"Wide", "image/png", painted(t, 3136, 10, 0), false, "image/png", 1568, 5},
		{"Tall", "image/png", painted(t, 1, 4000, 0), false, "image/png", 1, 1568},
		{"Noise", "image/png", painted(t, 1000, 700, 1), false, "image/jpeg", 1000, 700},
		{"Animated", "image/gif", manyFrames(t, 2000, 1000, 3), false, "image/png", 1568, 784},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := readPictureHeader(bytes.NewReader(c.data), c.mime)
			if err != nil || h.fits(int64(len(c.data))) != c.fits {
				t.Fatalf("%+v, %v", h, err)
			}
			data, err := shrinkPicture(bytes.NewReader(c.data), c.mime)
			if err != nil || sandbox.PictureType(data) != c.want || len(data) > sandbox.MaxPreview {
				t.Fatalf("%s, %d bytes, %v", sandbox.PictureType(data), len(data), err)
			}
			m, _, err := image.Decode(bytes.NewReader(data))
			if err != nil || m.Bounds().Dx() != c.w || m.Bounds().Dy() != c.h {
				t.Errorf("%v, %v", m.Bounds(), err)
			}
			if got := color.GrayModel.Convert(m.At(0, 0)).(color.Gray).Y; c.name == "Wide" && (got < 0x7e || got > 0x82) {
				t.Errorf("the colour is %#x", got)
			}
		})
	}
}

// TestHostilePictures has pictures of few bytes that cost their decoder much,
// and some that are none. None of those that are refused is decoded.
func TestHostilePictures(t *testing.T) {
	lies := painted(t, 1, 1, 0)
	copy(lies[16:], "\x00\x01\x00\x00\x00\x01\x00\x00")
	adobe := append([]byte("\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"), jpegStart(0xc0, 4000, 4000, 0x22, 0x11, 0x11)[2:]...)
	const large = "takes more than 32 MiB of memory"
	for _, c := range []struct {
		name, mime string
		data       []byte
		want       string // of the refusal
	}{
		{"16BitPNG", "image/png", bigPNG(t, 6400, 6500/raceFactor, 16, 6, 4, 0), large},
		{"PNG", "image/png", bigPNG(t, 3000, 3000, 8, 6, 4, 0), large},
		{"InterlacedPNG", "image/png", bigPNG(t, 2200, 2200, 8, 6, 4, 1), large},
		{"PNGThatLies", "image/png", lies, "it is no picture of the type image/png"},
		{"ProgressiveCMYK", "image/jpeg", jpegStart(0xc2, 1400, 1400, 0x11, 0x11, 0x11, 0x11), large},
		{"Progressive", "image/jpeg", jpegStart(0xc2, 2200, 2200, 0x11, 0x11, 0x11), large},
		{"CMYK", "image/jpeg", jpegStart(0xc0, 2200, 2200, 0x11, 0x11, 0x11, 0x11), large},
		{"RGB", "image/jpeg", adobe, large},
		{"Baseline", "image/jpeg", jpegStart(0xc0, 60000, 60000, 0x22, 0x11, 0x11), large},
		{"GIF", "image/gif", []byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), large},
		{"WebP", "image/webp", webpStart(16000, 16000), large},
		{"Another", "image/jpeg", painted(t, 3, 3, 0), "it is no picture of the type image/jpeg"},
		{"None", "image/png", []byte("x"), "it is no picture of the type image/png"},
		{"CutOff", "image/png", painted(t, 3136, 10, 0)[:60], "it is broken: "},
		{"BrokenWebP", "image/webp", webpStart(1700, 100), "it is broken: "},
		{"BrokenProgressive", "image/jpeg", jpegStart(0xc2, 1600, 100, 0x22, 0x11, 0x11), "it is broken: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			data, err := shrinkPicture(bytes.NewReader(c.data), c.mime)
			runtime.ReadMemStats(&after)
			if why, ok := errors.AsType[pictureError](err); !ok || !strings.Contains(string(why), c.want) || data != nil {
				t.Errorf("%d bytes, %v; want %q", len(data), err, c.want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
				t.Errorf("refusing it took %d bytes", got)
			}
		})
	}
	if raceFactor != 1 {
		return // its own memory counts; see test-memory in the Makefile
	}
	// What decoders take is what was reckoned, for those of the largest cost.
	for name, data := range map[string][]byte{
		"image/png 16": bigPNG(t, 2000, 2000, 16, 6, 4, 0), "image/png": bigPNG(t, 2800, 2900, 8, 6, 4, 0),
		"image/png interlaced": bigPNG(t, 1800, 1800, 8, 6, 4, 1), "image/gif": manyFrames(t, 4000, 3900, 3),
	} {
		mime, _, _ := strings.Cut(name, " ")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := shrinkPicture(bytes.NewReader(data), mime)
		runtime.ReadMemStats(&after)
		// Beside the picture itself: the scaled one, buffers, and what is
		// garbage at once.
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > maxPictureMemory+48<<20 {
			t.Errorf("%s: %d bytes in all, %v", name, got, err)
		}
	}
}

func FuzzShrinkPicture(f *testing.F) {
	f.Add(painted(f, 3, 3, 0))
	f.Add(jpegStart(0xc2, 64, 64, 0x22, 0x11, 0x11))
	f.Add(manyFrames(f, 8, 8, 2))
	f.Add(webpStart(8, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mime := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
			if out, err := shrinkPicture(bytes.NewReader(data), mime); err == nil && len(out) > sandbox.MaxPreview {
				t.Errorf("%d bytes", len(out))
			}
		}
	})
}

// hungryArg makes the test program take more memory than one that shrinks
// pictures may.
const hungryArg = "take-memory"

func hungry() int {
	if err := limitPicture(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	taken := make([][]byte, 0, 64)
	for range cap(taken) {
		taken = append(taken, make([]byte, 16<<20))
	}
	runtime.KeepAlive(taken)
	return 0
}

// TestPictureProcessIsLimited has what shrinks pictures take more memory than
// its headers tell, as a decoder might that is deceived.
func TestPictureProcessIsLimited(t *testing.T) {
	if raceFactor != 1 {
		t.Skip("the race detector ends the program before its own memory does; see test-memory in the Makefile")
	}
	out, err := exec.Command("/proc/self/exe", hungryArg).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !bytes.Contains(out, []byte("out of memory")) {
		t.Errorf("%v: %.300s", err, out)
	}
}

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
	small := painted(t, 30, 20, 0)
	for name, data := range map[string][]byte{
		"small.png": small, "wide.png": painted(t, 3136, 10, 0), "bomb.png": bigPNG(t, 6400, 6500/raceFactor, 16, 6, 4, 0), "none.png": []byte("x"),
		"broken.png": painted(t, 3136, 10, 0)[:60], "small.jpeg": small,
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
			if ok != (asked && (w.mime != "" || w.why != "")) || sandbox.PictureType(p.Data) != w.mime && asked || !strings.Contains(p.Why, w.why) && asked {
				t.Errorf("%s, asked %v: %v, %d bytes of %q, %q", w.name, asked, ok, len(p.Data), sandbox.PictureType(p.Data), p.Why)
			}
		}
	}
	for _, w := range append(want, struct{ name, mime, why string }{"small.jpeg", "", "no picture of the type image/jpeg"}) {
		mime := "image/" + strings.TrimPrefix(filepath.Ext(w.name), ".")
		data, err := h.Preview(t.Context(), filepath.Join(dir, w.name), mime, guestapi.FileOptions{})
		switch {
		case w.why != "":
			wantKind(t, err, sandbox.Invalid, w.why)
		case err != nil || sandbox.PictureType(data) != "image/png":
			t.Errorf("%s: %d bytes, %v", w.name, len(data), err)
		case w.mime == "" && !bytes.Equal(data, small):
			t.Errorf("%s: it is another picture", w.name)
		}
	}
	_, err = h.Preview(t.Context(), filepath.Join(dir, "absent.png"), "image/png", guestapi.FileOptions{})
	wantKind(t, err, sandbox.NotFound, "")
	_, err = h.Preview(t.Context(), "/dev/zero", "image/png", guestapi.FileOptions{})
	wantKind(t, err, sandbox.Invalid, "not a regular file")
}

// TestPreviewEnds stops a run whose pictures take long, and one that shows more
// pictures than are shrunk.
func TestPreviewEnds(t *testing.T) {
	h := newEvalHost(t, "python3")
	data := painted(t, 1600, 1, 0)
	g := &Guest{shrinks: make(chan struct{}, 1), cfg: Config{AsSelf: true}}
	done := make(chan struct{})
	close(done)
	g.shrinks <- struct{}{} // another is at it
	if _, err := g.preview(done, nil, "image/png", int64(len(data)), func() io.Reader { return bytes.NewReader(data) }); !strings.Contains(rpc.Wire(err).Message, "the run ended before") {
		t.Error(err)
	}
	r := gather(t, h.eval(&guestapi.ExecuteRequest{TimeoutMillis: 60000, Previews: true, Code: fmt.Sprintf(`
class P:
    def _repr_png_(self): return data
import zlib, struct
def chunk(n, d): return struct.pack('>I', len(d)) + n + d + struct.pack('>I', zlib.crc32(n + d))
data = b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 1600, 1, 8, 0, 0, 0, 0)) + chunk(b'IDAT', zlib.compress(bytes(1601))) + chunk(b'IEND', b'')
for i in range(%d): display(P())
`, maxRunPreviews+2)}), nil)
	made := 0
	for _, res := range r.results {
		if len(res.Previews["image/png"].Data) > 0 {
			made++
		}
	}
	if last := r.results[len(r.results)-1].Previews["image/png"]; r.end.Status != guestapi.EndOK || made == 0 || made > maxRunPreviews || !strings.Contains(last.Why, "no more are shrunk") {
		t.Errorf("%+v, %d previews, %+v", r.end, made, last)
	}
}
