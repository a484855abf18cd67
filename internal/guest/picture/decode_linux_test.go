package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/jpeg"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/guest/picture/picturetest"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == hungryArg {
		os.Exit(hungry())
	}
	os.Exit(m.Run())
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
		{"Small", "image/png", picturetest.Painted(t, 30, 20, 0), true, "image/png", 30, 20},
		{"JPEG", "image/jpeg", photo.Bytes(), true, "image/png", 30, 20},
		{"Wide", "image/png", picturetest.Painted(t, 3136, 10, 0), false, "image/png", 1568, 5},
		{"Tall", "image/png", picturetest.Painted(t, 1, 4000, 0), false, "image/png", 1, 1568},
		{"Noise", "image/png", picturetest.Painted(t, 1000, 700, 1), false, "image/jpeg", 1000, 700},
		{"Animated", "image/gif", manyFrames(t, 2000, 1000, 3), false, "image/png", 1568, 784},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, err := readHeader(bytes.NewReader(c.data), c.mime)
			if err != nil || h.fits(int64(len(c.data))) != c.fits {
				t.Fatalf("%+v, %v", h, err)
			}
			data, err := shrink(bytes.NewReader(c.data), c.mime)
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
// and some that are none. A refused picture is not decoded.
func TestHostilePictures(t *testing.T) {
	lies := picturetest.Painted(t, 1, 1, 0)
	copy(lies[16:], "\x00\x01\x00\x00\x00\x01\x00\x00")
	adobe := append([]byte("\xff\xd8\xff\xee\x00\x0eAdobe\x00\x64\x00\x00\x00\x00\x00"), jpegStart(0xc0, 4000, 4000, 0x22, 0x11, 0x11)[2:]...)
	const large = "takes more than 32 MiB of memory"
	for _, c := range []struct {
		name, mime string
		data       []byte
		want       string // of the refusal
	}{
		{"16BitPNG", "image/png", picturetest.BigPNG(t, 6400, 6500/raceFactor, 16, 6, 4, 0), large},
		{"PNG", "image/png", picturetest.BigPNG(t, 3000, 3000, 8, 6, 4, 0), large},
		{"InterlacedPNG", "image/png", picturetest.BigPNG(t, 2200, 2200, 8, 6, 4, 1), large},
		{"PNGThatLies", "image/png", lies, "it is no picture of the type image/png"},
		{"ProgressiveCMYK", "image/jpeg", jpegStart(0xc2, 1400, 1400, 0x11, 0x11, 0x11, 0x11), large},
		{"Progressive", "image/jpeg", jpegStart(0xc2, 2200, 2200, 0x11, 0x11, 0x11), large},
		{"CMYK", "image/jpeg", jpegStart(0xc0, 2200, 2200, 0x11, 0x11, 0x11, 0x11), large},
		{"RGB", "image/jpeg", adobe, large},
		{"Baseline", "image/jpeg", jpegStart(0xc0, 60000, 60000, 0x22, 0x11, 0x11), large},
		{"GIF", "image/gif", []byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), large},
		{"WebP", "image/webp", webpStart(16000, 16000), large},
		{"Another", "image/jpeg", picturetest.Painted(t, 3, 3, 0), "it is no picture of the type image/jpeg"},
		{"None", "image/png", []byte("x"), "it is no picture of the type image/png"},
		{"CutOff", "image/png", picturetest.Painted(t, 3136, 10, 0)[:60], "it is broken: "},
		{"BrokenWebP", "image/webp", webpStart(1700, 100), "it is broken: "},
		{"BrokenProgressive", "image/jpeg", jpegStart(0xc2, 1600, 100, 0x22, 0x11, 0x11), "it is broken: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			data, err := shrink(bytes.NewReader(c.data), c.mime)
			runtime.ReadMemStats(&after)
			if why, ok := errors.AsType[refusal](err); !ok || !strings.Contains(string(why), c.want) || data != nil {
				t.Errorf("%d bytes, %v; want %q", len(data), err, c.want)
			}
			if got := after.TotalAlloc - before.TotalAlloc; got > 8<<20 {
				t.Errorf("refusing it took %d bytes", got)
			}
		})
	}
	if raceFactor != 1 {
		return // its own memory counts; see test-plain in the Makefile
	}
	// What decoders take is what was reckoned, for those of the largest cost.
	for name, data := range map[string][]byte{
		"image/png 16": picturetest.BigPNG(t, 2000, 2000, 16, 6, 4, 0), "image/png": picturetest.BigPNG(t, 2800, 2900, 8, 6, 4, 0),
		"image/png interlaced": picturetest.BigPNG(t, 1800, 1800, 8, 6, 4, 1), "image/gif": manyFrames(t, 4000, 3900, 3),
	} {
		mime, _, _ := strings.Cut(name, " ")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := shrink(bytes.NewReader(data), mime)
		runtime.ReadMemStats(&after)
		// Beside the picture itself: the scaled one, buffers, and what is
		// garbage at once.
		if got := after.TotalAlloc - before.TotalAlloc; err != nil || got > maxMemory+48<<20 {
			t.Errorf("%s: %d bytes in all, %v", name, got, err)
		}
	}
}

func FuzzShrinkPicture(f *testing.F) {
	f.Add(picturetest.Painted(f, 3, 3, 0))
	f.Add(jpegStart(0xc2, 64, 64, 0x22, 0x11, 0x11))
	f.Add(manyFrames(f, 8, 8, 2))
	f.Add(webpStart(8, 8))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, mime := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
			if out, err := shrink(bytes.NewReader(data), mime); err == nil && len(out) > sandbox.MaxPreview {
				t.Errorf("%d bytes", len(out))
			}
		}
	})
}

// hungryArg makes the test program take more memory than one that shrinks
// pictures may.
const hungryArg = "take-memory"

func hungry() int {
	if err := limit(); err != nil {
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
		t.Skip("the race detector ends the program before its own memory does; see test-plain in the Makefile")
	}
	out, err := exec.Command("/proc/self/exe", hungryArg).CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 2 || !bytes.Contains(out, []byte("out of memory")) {
		t.Errorf("%v: %.300s", err, out)
	}
}

// A caller that leaves does not wait for the preview of another.
func TestPreviewEnds(t *testing.T) {
	data := picturetest.Painted(t, 1600, 1, 0)
	m := NewMaker(nil)
	done := make(chan struct{})
	close(done)
	m.busy <- struct{}{} // another is at it
	if _, err := m.Preview(done, nil, "image/png", int64(len(data)), func() io.Reader { return bytes.NewReader(data) }); !strings.Contains(rpc.Wire(err).Message, "the run ended before") {
		t.Error(err)
	}
}
