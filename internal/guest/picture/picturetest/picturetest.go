// Package picturetest makes pictures for tests, among them pictures that are
// hostile to decoders.
//
// Only tests import it.
package picturetest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"math/rand/v2"
	"testing"
)

// Painted returns a picture as PNG; noise is a seed, or 0 for one colour.
func Painted(t testing.TB, w, h int, noise uint64) []byte {
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

// maxPixels bounds the bytes of pixels in a PNG.
const maxPixels = 32 << 20

// BigPNG returns a PNG of zeros without holding its pixels. If the picture is
// larger than decoders accept, BigPNG returns its beginning.
func BigPNG(t testing.TB, w, h, depth, colourType, channels, interlace int) []byte {
	t.Helper()
	var out, body bytes.Buffer
	out.WriteString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
		out.WriteString(name)
		out.Write(data)
		out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(append([]byte(name), data...))))
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
		for range min((h-p[1]+p[3]-1)/p[3], maxPixels/len(row)) {
			if _, err := z.Write(row); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	chunk("IDAT", body.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}
