package e2bapi

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"
)

// BenchmarkJournal reads the output of a program along. The journal must not be the
// slowest part of a stream.
func BenchmarkJournal(b *testing.B) {
	var lines, stream bytes.Buffer
	for n := range 200_000 {
		fmt.Fprintln(&lines, n)
	}
	for chunk := range slices.Chunk(lines.Bytes(), 32<<10) {
		message := fmt.Appendf(nil, `{"event":{"data":{"stdout":%q}}}`, base64.StdEncoding.EncodeToString(chunk))
		stream.Write(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))))
		stream.Write(message)
	}
	b.SetBytes(int64(lines.Len()))
	for b.Loop() {
		j := newJournal(time.Now)
		if _, err := io.Copy(io.Discard, j.watchProcess("sbx", nil, io.NopCloser(bytes.NewReader(stream.Bytes())))); err != nil {
			b.Fatal(err)
		}
		if len(j.list("sbx")) == 0 {
			b.Fatal("the journal is empty")
		}
	}
}
