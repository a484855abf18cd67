package picture

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"image"
	_ "image/gif" // decoders for image.Decode
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on a preview. Models see no more than about maxSide pixels of a
// side. maxMemory bounds the memory of a decoded picture, in bytes, and
// is checked before decoding. headroom is for the scaled picture, its
// encoder and the garbage collector. It is part of the process's memory limit,
// in case a picture takes more than its header says.
const (
	maxSide     = 1568
	maxMemory   = 32 << 20
	headroom    = 128 << 20
	maxHeader   = 4 << 20
	jpegQuality = 85
)

// A refusal is the reason why a model is not shown a picture.
type refusal string

func (e refusal) Error() string { return string(e) }

// A header is the data in a picture's header.
type header struct {
	width, height int
	head          []byte // the bytes that were read
	format        string
}

// readHeader reads the header of a picture of a MIME type.
func readHeader(r io.Reader, mime string) (h *header, err error) {
	// This runs in the guest's own process, which must survive any picture.
	defer func() {
		if recover() != nil {
			h, err = nil, refusal("its header is broken")
		}
	}()
	var head bytes.Buffer
	cfg, format, err := image.DecodeConfig(io.TeeReader(io.LimitReader(r, maxHeader), &head))
	if err != nil || "image/"+format != mime || cfg.Width <= 0 || cfg.Height <= 0 {
		return nil, refusal("it is no picture of the type " + mime)
	}
	return &header{cfg.Width, cfg.Height, head.Bytes(), format}, nil
}

// fits reports whether models can be shown a picture of size bytes as it is.
func (h *header) fits(size int64) bool {
	return h.width <= maxSide && h.height <= maxSide && size <= sandbox.MaxPreview
}

// check refuses a picture that takes too much memory to decode.
func (h *header) check() error {
	if int64(h.width) > maxMemory/h.halfBytes()*2/int64(h.height) {
		return refusal(fmt.Sprintf("decoding its %d x %d pixels takes more than %d MiB of memory", h.width, h.height, maxMemory>>20))
	}
	return nil
}

// halfBytes returns an upper bound of the half bytes per pixel that decoding
// takes.
func (h *header) halfBytes() int64 {
	switch h.format {
	case "png":
		return pngHalfBytes(h.head)
	case "jpeg":
		return jpegHalfBytes(h.head)
	case "gif":
		return 2 * 2 // colour indices, twice if the lines are interlaced
	}
	if len(h.head) > 15 && string(h.head[12:16]) == "VP8 " {
		return 2 * 2 // Y'CbCr, 4:2:0, in whole blocks
	}
	return 2 * 8 // NRGBA, and a transform of it
}

// pngHalfBytes is halfBytes for PNG. It is decoded to the pixels of its colour
// type. Each pass of an interlaced picture is decoded to a picture of its own.
func pngHalfBytes(head []byte) int64 {
	const depth, colourType, interlace = 24, 25, 28
	if len(head) <= interlace {
		return 2 * 16
	}
	bytes := int64(4)
	switch {
	case head[depth] == 16:
		bytes = 8
	case head[colourType] == 3:
		bytes = 1 // a palette
	}
	if head[interlace] != 0 {
		bytes *= 2
	}
	return 2 * bytes
}

// jpegHalfBytes is halfBytes for JPEG. It is decoded to one plane per component;
// planes of colours may have fewer samples. A progressive JPEG keeps 4 bytes per
// sample until its end. Four components become CMYK. Red, green and blue become
// RGBA.
func jpegHalfBytes(head []byte) int64 {
	f, ok := readJPEGFrame(head)
	if !ok {
		f = jpegFrame{components: 4, samples: 2 * 4, progressive: true} // the upper bound
	}
	n := f.samples
	if f.progressive {
		n += 4 * f.samples
	}
	if f.components == 4 || f.rgb {
		n += 2 * 4
	}
	return n
}

// A jpegFrame is the header of a JPEG's frame. Samples is the number of samples
// of all components per pixel, in halves.
type jpegFrame struct {
	components       int
	samples          int64
	progressive, rgb bool
}

// readJPEGFrame reads the header of the frame. It also reads the markers before
// the first scan that decide whether the picture is RGB.
func readJPEGFrame(head []byte) (f jpegFrame, ok bool) {
	const app0, app14, scan = 0xe0, 0xee, 0xda
	jfif, plain, named := false, false, false
	for at := 2; at+4 <= len(head) && head[at] == 0xff && head[at+1] != scan; {
		if head[at+1] == 0xff { // a fill byte
			at++
			continue
		}
		end := at + 2 + int(binary.BigEndian.Uint16(head[at+2:]))
		body := head[at+4 : max(at+4, min(end, len(head)))]
		switch marker := head[at+1]; marker {
		case app0:
			jfif = jfif || bytes.HasPrefix(body, []byte("JFIF\x00"))
		case app14:
			plain = plain || len(body) >= 12 && bytes.HasPrefix(body, []byte("Adobe")) && body[11] == 0
		case 0xc0, 0xc1, 0xc2:
			if ok = f.read(body); !ok {
				return f, false
			}
			f.progressive = marker == 0xc2
			named = f.components == 3 && body[6] == 'R' && body[9] == 'G' && body[12] == 'B'
		}
		at = end
	}
	f.rgb = f.components == 3 && !jfif && (plain || named)
	return f, ok
}

// read reads the components of a frame.
func (f *jpegFrame) read(body []byte) bool {
	const first, each = 6, 3
	if len(body) < first || body[5] == 0 || body[5] > 4 || len(body) < first+each*int(body[5]) {
		return false
	}
	f.components = int(body[5])
	var area, most int64
	for c := range f.components {
		factors := body[first+each*c+1]
		n := int64(factors>>4) * int64(factors&15)
		if n == 0 {
			return false
		}
		area, most = area+n, max(most, n)
	}
	f.samples = (2*area + most - 1) / most
	return true
}

// decodeWhole decodes a picture, unless that takes too much memory.
func decodeWhole(r io.Reader, mime string) (image.Image, error) {
	h, err := readHeader(r, mime)
	if err != nil {
		return nil, err
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	m, _, err := image.Decode(io.MultiReader(bytes.NewReader(h.head), r))
	if err != nil {
		return nil, refusal("it is broken: " + err.Error())
	}
	return m, nil
}

// shrink returns a picture in the size in which models see it.
func shrink(r io.Reader, mime string) ([]byte, error) {
	from, err := decodeWhole(r, mime)
	if err != nil {
		return nil, err
	}
	width, height := from.Bounds().Dx(), from.Bounds().Dy()
	scale := min(1, float64(maxSide)/float64(max(width, height)))
	size := image.Rect(0, 0, max(1, int(float64(width)*scale)), max(1, int(float64(height)*scale)))
	to := image.NewNRGBA(size)
	draw.ApproxBiLinear.Scale(to, size, from, from.Bounds(), draw.Src, nil)
	var out bytes.Buffer
	if err := png.Encode(&out, to); err == nil && out.Len() <= sandbox.MaxPreview {
		return out.Bytes(), nil
	}
	// Pictures for which PNG is too large are mostly photographs.
	out.Reset()
	if err := jpeg.Encode(&out, to, &jpeg.Options{Quality: jpegQuality}); err != nil {
		return nil, err
	}
	if out.Len() > sandbox.MaxPreview {
		return nil, refusal(fmt.Sprintf("it is more than %d MiB also when it is shrunk", sandbox.MaxPreview>>20))
	}
	return out.Bytes(), nil
}
