package mcpserver

import (
	"bytes"
	"image"
	_ "image/gif" // decoders that image.Decode finds
	"image/jpeg"
	"image/png"

	"golang.org/x/image/draw"
	_ "golang.org/x/image/webp"
)

// Bounds on a picture in an answer. Models see no more than about so many
// pixels of a side; what is larger costs its receiver only room. What a sandbox
// calls a picture is not decoded beyond so many pixels.
const (
	maxPictureSide   = 1568
	maxPictureBytes  = 1 << 20
	maxPicturePixels = 40 << 20
	jpegQuality      = 85
)

// fitPicture returns a picture that is fit for an answer: as it is, or smaller.
// It reports false for what is no picture of that type, or too large.
func fitPicture(mime string, data []byte) (string, []byte, bool) {
	cfg, format, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil || "image/"+format != mime || cfg.Width <= 0 || cfg.Height <= 0 {
		return "", nil, false
	}
	if cfg.Width <= maxPictureSide && cfg.Height <= maxPictureSide && len(data) <= maxPictureBytes {
		return mime, data, true
	}
	if cfg.Width > maxPicturePixels/cfg.Height {
		return "", nil, false
	}
	from, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return "", nil, false
	}
	scale := min(1, float64(maxPictureSide)/float64(max(cfg.Width, cfg.Height)))
	size := image.Rect(0, 0, max(1, int(float64(cfg.Width)*scale)), max(1, int(float64(cfg.Height)*scale)))
	to := image.NewNRGBA(size)
	draw.ApproxBiLinear.Scale(to, size, from, from.Bounds(), draw.Src, nil)
	var out bytes.Buffer
	if err := png.Encode(&out, to); err == nil && out.Len() <= maxPictureBytes {
		return "image/png", out.Bytes(), true
	}
	// Pictures that PNG does not make small are photographs, more or less.
	out.Reset()
	if err := jpeg.Encode(&out, to, &jpeg.Options{Quality: jpegQuality}); err != nil || out.Len() > maxPictureBytes {
		return "", nil, false
	}
	return "image/jpeg", out.Bytes(), true
}
