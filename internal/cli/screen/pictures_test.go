package screen

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// aPNG returns the beginning of a PNG of that size, and as many bytes more.
func aPNG(width, height uint32, more int) []byte {
	return fmt.Appendf(nil, "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR%s%s%s", size(width), size(height), make([]byte, more))
}

func size(n uint32) []byte { return []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)} }

func TestFits(t *testing.T) {
	type of struct {
		mime string
		data []byte
	}
	for _, c := range []struct {
		of   of
		want bool
	}{
		{of{"image/png", aPNG(640, 480, 100)}, true},
		{of{"image/png", aPNG(4096, 4096, 0)}, true},
		{of{"image/png", aPNG(4096, 4097, 0)}, false},
		{of{"image/png", aPNG(1<<31, 1<<31, 0)}, false},
		{of{"image/png", aPNG(0, 480, 0)}, false},
		{of{"image/png", aPNG(640, 480, maxScreenBytes)}, false},
		{of{"image/png", []byte("\x89PNG\r\n\x1a\n")}, false},
		{of{"image/jpeg", []byte("\xff\xd8\xff")}, false},
	} {
		if got := fits(c.of.mime, c.of.data); got != c.want {
			t.Errorf("%.40q (%d bytes): %v, want %v", c.of.data, len(c.of.data), got, c.want)
		}
	}
}

// TestSendKitty checks the commands: each is short, and together they have the
// picture.
func TestSendKitty(t *testing.T) {
	data := aPNG(640, 480, 10_000)
	var out bytes.Buffer
	if err := sendKitty(&out, data, 80); err != nil {
		t.Fatal(err)
	}
	var heads []string
	text := ""
	for part := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\x1b\\") {
		head, piece, ok := strings.Cut(part, ";")
		if !ok {
			continue
		}
		if len(piece) > kittyPiece {
			t.Errorf("%d characters in one command", len(piece))
		}
		heads, text = append(heads, head), text+piece
	}
	if d := cmp.Diff([]string{"\x1b_Ga=T,f=100,q=2,c=80,m=1", "\x1b_Gm=1", "\x1b_Gm=1", "\x1b_Gm=0"}, heads); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got, err := base64.StdEncoding.DecodeString(text); err != nil || !bytes.Equal(got, data) {
		t.Errorf("another picture: %v", err)
	}
}

func TestSendInline(t *testing.T) {
	var out bytes.Buffer
	if err := sendInline(&out, []byte("abc")); err != nil {
		t.Fatal(err)
	}
	if want := "\x1b]1337;File=inline=1;size=3:YWJj\a\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}
