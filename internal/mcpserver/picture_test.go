package mcpserver

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"hash/crc32"
	"log/slog"
	"runtime"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
)

// pictureBomb returns a PNG of 6400 x 6500 pixels with 16 bits a channel, in some
// hundred kilobytes: its decoder takes 340 MB.
func pictureBomb(t *testing.T) []byte {
	t.Helper()
	const width, height = 6400, 6500
	out := bytes.NewBufferString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, data []byte) {
		out.Write(binary.BigEndian.AppendUint32(nil, uint32(len(data))))
		out.WriteString(name)
		out.Write(data)
		out.Write(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE(append([]byte(name), data...))))
	}
	header := binary.BigEndian.AppendUint32(nil, width)
	chunk("IHDR", append(binary.BigEndian.AppendUint32(header, height), 16, 6, 0, 0, 0))
	var body bytes.Buffer
	z := zlib.NewWriter(&body)
	row := make([]byte, 1+width*8)
	for range height {
		if _, err := z.Write(row); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	chunk("IDAT", body.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// TestPictureBomb has a program show a picture that costs its decoder much, and
// a client look at it again and again. The server takes memory for the picture's
// bytes and no more.
func TestPictureBomb(t *testing.T) {
	s, _ := newTestServer(t, func(o *Options) { o.Log = slog.New(slog.DiscardHandler) })
	cs := serveStdio(t, s, nil)
	bomb := pictureBomb(t)
	if len(bomb) > 512<<10 {
		t.Fatalf("the picture has %d bytes", len(bomb))
	}
	script := "show image/png " + quoted(bomb)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	id := structured[answer.Run](t, callTool(t, cs, "run_code", args{"code": script})).RunID
	for range 6 {
		callTool(t, cs, "get_run", args{"run_id": id})
	}
	runtime.ReadMemStats(&after)
	// The client of this process takes most of it: JSON of base64, several times.
	if got := after.TotalAlloc - before.TotalAlloc; got > 120<<20 {
		t.Errorf("a picture of %d bytes, shown seven times, took %d", len(bomb), got)
	}
}
