package drivertest

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"sync"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// testPicture checks that a box makes previews of pictures, and survives
// pictures that are expensive to decode. The guest's own tests check the
// previews.
func testPicture(t *testing.T, s *suite) {
	b := s.open(t).box(t)
	dir := b.Dir(t)
	b.write(t, dir+"/wide.png", string(picture(3136, 10, 8)))
	if s.h.NoPreviews {
		_, err := b.Client.Preview(step(t), dir+"/wide.png", "image/png", asUser)
		wantKind(t, "Preview by an agent that is not ours", err, sandbox.Unsupported)
		_, err = b.Client.Sixel(step(t), sandbox.ToBase64(picture(30, 20, 8)), "image/png", 100)
		wantKind(t, "Sixel by an agent that is not ours", err, sandbox.Unsupported)
		return
	}
	pictureSixel(t, b)
	width := func(name string) uint32 {
		t.Helper()
		data, err := b.Client.Preview(step(t), dir+"/"+name, "image/png", asUser)
		if err != nil || sandbox.PictureType(data) != "image/png" || len(data) < 24 {
			t.Errorf("preview of %s: %d bytes, %v", name, len(data), err)
			return 0
		}
		return binary.BigEndian.Uint32(data[16:])
	}
	if got := width("wide.png"); got != 1568 {
		t.Errorf("the preview is %d pixels wide", got)
	}
	// The race detector makes encoding and decoding fifty times slower.
	const slow = raceFactor * raceFactor
	b.write(t, dir+"/bomb.png", string(picture(6400, 6500/slow, 16)))
	_, err := b.Client.Preview(step(t), dir+"/bomb.png", "image/png", asUser)
	wantKind(t, "Preview of what takes 340 MB", err, sandbox.Invalid)
	_, err = b.Client.Preview(step(t), dir+"/absent.png", "image/png", asUser)
	wantKind(t, "Preview of nothing", err, sandbox.NotFound)
	// Several pictures of the maximum size at the same time.
	b.write(t, dir+"/large.png", string(picture(2000, 2000/slow, 16)))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if got := width("large.png"); got != 1568 {
				t.Errorf("the preview of the largest is %d pixels wide", got)
			}
		})
	}
	all.Wait()
	if r, err := b.Run(step(t), Sh("echo alive")); err != nil || r.Stdout != "alive\n" {
		t.Errorf("after them the box says %v, %v", r, err)
	}
}

// pictureSixel turns pictures into sixels, which begin with their size.
func pictureSixel(t *testing.T, b *Box) {
	for _, c := range []struct {
		picture []byte
		width   int
		want    string
	}{{picture(30, 20, 8), 100, "30;20"}, {picture(300, 20, 8), 100, "100;6"}, {picture(20, 3136, 8), 100, "10;1568"}, {picture(2000, 2000/(raceFactor*raceFactor), 8), sandbox.MaxSixelSide, "1568;"}} {
		data, err := b.Client.Sixel(step(t), sandbox.ToBase64(c.picture), "image/png", c.width)
		start, _, _ := bytes.Cut(data, []byte("#"))
		if _, size, _ := bytes.Cut(start, []byte("q\"1;1;")); err != nil || !bytes.HasPrefix(data, []byte("\x1bP")) || !bytes.HasPrefix(size, []byte(c.want)) {
			t.Errorf("sixels of %d bytes begin with %q, %v; want the size %s", len(data), start, err, c.want)
		}
	}
	for what, c := range map[string]struct {
		picture sandbox.Base64
		width   int
	}{
		"no picture": {sandbox.ToBase64([]byte("x")), 100}, "a part of a picture": {sandbox.ToBase64(picture(300, 20, 8)[:60]), 100}, "no base64": {"!", 100},
		"no width": {sandbox.ToBase64(picture(30, 20, 8)), 0}, "a large width": {sandbox.ToBase64(picture(30, 20, 8)), sandbox.MaxSixelSide + 1},
	} {
		_, err := b.Client.Sixel(step(t), c.picture, "image/png", c.width)
		wantKind(t, "Sixel of "+what, err, sandbox.Invalid)
	}
}

// picture returns a PNG of one colour, RGBA with depth bits per channel.
func picture(width, height uint32, depth int) []byte {
	out := []byte("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		out = binary.BigEndian.AppendUint32(out, uint32(len(data)))
		out = append(append(out, name...), data...)
		out = binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(out[len(out)-len(name)-len(data):]))
	}
	header := binary.BigEndian.AppendUint32(nil, width)
	chunk("IHDR", append(binary.BigEndian.AppendUint32(header, height), byte(depth), 6, 0, 0, 0))
	var body bytes.Buffer
	z := zlib.NewWriter(&body)
	row := make([]byte, 1+int(width)*depth/2)
	for range height {
		z.Write(row) // to memory, which cannot fail
	}
	z.Close()
	chunk("IDAT", body.Bytes())
	chunk("IEND", nil)
	return out
}
