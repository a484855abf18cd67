package guestapi

import (
	"bytes"
	"fmt"
	"net"
	"runtime"
	"testing"
)

// TestGuestHeaders calls guests that answer with as many headers as they may, or
// more. Open streams do not hold them.
func TestGuestHeaders(t *testing.T) {
	const continuation = 9 // the type of frame
	for _, fields := range []int{100, 1500, 5000, 200_000} {
		all := bytes.Clone(status200)
		for i := range fields {
			name := fmt.Sprintf("x%x", i)
			all = append(append(append(all, 0, byte(len(name))), name...), 0) // a literal without a value
		}
		c := liar(t, func(conn net.Conn, id uint32) bool {
			block := all
			for typ := byte(frameHeaders); len(block) > 0; typ = continuation {
				n := min(len(block), 16000)
				flags := byte(0)
				if n == len(block) {
					flags = flagEndHeaders
				}
				conn.Write(frame(typ, flags, id, block[:n]))
				block = block[n:]
			}
			conn.Write(frame(frameData, 0, id, AppendEnvelope(nil, 0, []byte(started))))
			return true
		})
		const streams = 8
		before := heapBytes()
		var open []*Events
		for range streams {
			p, err := c.Connect(t.Context(), ProcessSelector{PID: 7})
			if small := fields*36 < maxHeaders; small != (err == nil) {
				t.Errorf("%d headers: %v", fields, err)
			}
			if err == nil {
				open = append(open, p)
			}
		}
		held := heapBytes() - before
		t.Logf("%d headers: %d open streams hold %d KiB", fields, len(open), held>>10)
		if len(open) > 0 && held > 1<<20 {
			t.Errorf("%d headers: %d open streams hold %d KiB", fields, len(open), held>>10)
		}
		for _, p := range open {
			p.Close()
		}
		c.Close()
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
