package screen

import (
	"bytes"
	"io"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// showSixel is a Show that sends sixels. The sandbox made them and is hostile, so
// it sends nothing but sixels within the bounds.
func showSixel(w io.Writer, p Picture) (bool, error) {
	if !validSixel(p.Sixel) {
		return false, nil
	}
	_, err := w.Write(append(bytes.Clone(p.Sixel), '\n'))
	return err == nil, err
}

// Bounds on the parameters of sixels.
const (
	maxSixelColours    = 256
	maxSixelParameters = 5
	rgb                = 2 // the colour space of "#n;2;r;g;b", in percent
)

// validSixel reports whether data is one sixel picture: the control string
// ESC P ... q ... ESC \ with a size, colours in percent and sixels, all within the
// bounds, and without any other character.
func validSixel(data []byte) bool {
	body, ok := bytes.CutPrefix(data, []byte("\x1bP"))
	if !ok || len(data) > sandbox.MaxSixel {
		return false
	}
	if body, ok = bytes.CutSuffix(body, []byte("\x1b\\")); !ok {
		return false
	}
	s := sixelReader{rest: body}
	if n := s.parameters(); len(n) > 3 || !s.skip('q') || !s.skip('"') {
		return false
	}
	size := s.parameters() // of a pixel, and of the picture
	if len(size) != 4 || !inBounds(size[2]) || !inBounds(size[3]) {
		return false
	}
	for len(s.rest) > 0 {
		if !s.command(size[2], size[3]) {
			return false
		}
	}
	return true
}

func inBounds(side int) bool { return side > 0 && side <= sandbox.MaxSixelSide }

// A sixelReader reads the commands of a sixel picture.
type sixelReader struct {
	rest []byte
	x, y int // the next position, in pixels
}

func (s *sixelReader) skip(c byte) bool {
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// parameters reads numbers between semicolons. A missing number is 0, and a large
// one is more than any bound. It reads one parameter more than there can be.
func (s *sixelReader) parameters() []int {
	const most = 1 << 20
	n := []int{0}
	for ; len(s.rest) > 0 && len(n) <= maxSixelParameters; s.rest = s.rest[1:] {
		switch c := s.rest[0]; {
		case c == ';':
			n = append(n, 0)
		case c >= '0' && c <= '9':
			n[len(n)-1] = min(10*n[len(n)-1]+int(c-'0'), most)
		default:
			return n
		}
	}
	return n
}

// command reads one command of a picture of that size.
func (s *sixelReader) command(width, height int) bool {
	c := s.rest[0]
	s.rest = s.rest[1:]
	switch {
	case c == '$':
		s.x = 0
	case c == '-':
		s.x, s.y = 0, s.y+6
	case c == '#':
		n := s.parameters()
		if len(n) == 5 {
			return n[0] < maxSixelColours && n[1] == rgb && n[2] <= 100 && n[3] <= 100 && n[4] <= 100
		}
		return len(n) == 1 && n[0] < maxSixelColours
	case c == '!':
		n := s.parameters()
		if len(n) != 1 || n[0] < 1 || len(s.rest) == 0 || !isSixel(s.rest[0]) {
			return false
		}
		s.x += n[0]
		s.rest = s.rest[1:]
	case isSixel(c):
		s.x++
	default:
		return false
	}
	return s.x <= width && s.y < height
}

// isSixel reports whether c is a column of six pixels.
func isSixel(c byte) bool { return c >= '?' && c <= '~' }
