package picture

import (
	"bytes"
	"errors"
	"image"
	"image/color"
	"image/png"
	"regexp"
	"testing"

	"github.com/mattn/go-sixel"

	"github.com/glovebox-dev/glovebox/internal/guest/picture/picturetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEncodeSixel turns pictures into sixels and reads them back. Noise is scaled
// until its sixels fit.
func TestEncodeSixel(t *testing.T) {
	clear := image.NewNRGBA(image.Rect(0, 0, 12, 12))
	for i := range 12 {
		clear.SetNRGBA(i, i, color.NRGBA{B: 0xff, A: 0xff})
	}
	var transparent bytes.Buffer
	if err := png.Encode(&transparent, clear); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		data   []byte
		width  int
		w, h   int // 0 is not checked
		corner color.NRGBA
	}{
		{"Small", picturetest.Painted(t, 30, 20, 0), 100, 30, 20, color.NRGBA{}},
		{"Wide", picturetest.Painted(t, 300, 20, 0), 100, 100, 6, color.NRGBA{}},
		{"High", picturetest.Painted(t, 2, 3136, 0), 100, 1, sandbox.MaxSixelSide, color.NRGBA{}},
		{"Noise", picturetest.Painted(t, 1500, 1500, 1), sandbox.MaxSixelSide, 0, 0, color.NRGBA{}},
		{"Transparent", transparent.Bytes(), 100, 12, 12, color.NRGBA{0xff, 0xff, 0xff, 0xff}},
	} {
		t.Run(c.name, func(t *testing.T) {
			data, err := encodeSixel(bytes.NewReader(c.data), "image/png", c.width)
			if err != nil || len(data) > sandbox.MaxSixel {
				t.Fatalf("%d bytes, %v", len(data), err)
			}
			// The characters and the numbers that a terminal gets are checked on the host.
			if !regexp.MustCompile(`^\x1bP[0-9;]*q"1;1;[0-9]+;[0-9]+[#-~!$"0-9;-]*\x1b\\$`).Match(data) {
				t.Errorf("it begins with %.60q", data)
			}
			var m image.Image
			if err := sixel.NewDecoder(bytes.NewReader(data)).Decode(&m); err != nil {
				t.Fatal(err)
			}
			if b := m.Bounds(); c.w > 0 && (b.Dx() != c.w || b.Dy() != c.h) || b.Dx() > c.width || b.Dy() > sandbox.MaxSixelSide {
				t.Errorf("%v, want %d by %d", b, c.w, c.h)
			}
			if c.corner.A > 0 {
				if got := color.NRGBAModel.Convert(m.At(m.Bounds().Max.X-1, m.Bounds().Min.Y)); got != c.corner {
					t.Errorf("a transparent pixel is %v", got)
				}
			}
		})
	}
	_, err := encodeSixel(bytes.NewReader(picturetest.BigPNG(t, 6400, 6500, 16, 6, 4, 0)), "image/png", 100)
	if _, ok := errors.AsType[refusal](err); !ok {
		t.Errorf("a picture that takes 340 MB: %v", err)
	}
}
