package container

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestScratch checks that what may be written is never more than the limit, and
// that most of it is where programs start.
func TestScratch(t *testing.T) {
	for _, disk := range []int64{sandbox.MinDiskBytes, 24 << 20, 1 << 30, 64 << 30} {
		for _, memory := range []int64{sandbox.MinMemoryBytes, 512 << 20, 16 << 30} {
			var sum, first int64
			for i, p := range scratch(sandbox.Limits{DiskBytes: disk, MemoryBytes: memory}, nil) {
				sum += p.Bytes
				if i == 0 {
					first = p.Bytes
				}
				if p.Bytes > memory/2 {
					t.Errorf("disk %d, memory %d: %s takes %d", disk, memory, p.Path, p.Bytes)
				}
			}
			for _, writable := range [][]string{{"/app"}, {"/a", "/b", "/c"}} {
				var sum int64
				for _, p := range scratch(sandbox.Limits{DiskBytes: disk, MemoryBytes: memory}, writable) {
					sum += p.Bytes
					if p.Bytes > memory/2 {
						t.Errorf("disk %d, memory %d: %s takes %d", disk, memory, p.Path, p.Bytes)
					}
				}
				if sum > disk {
					t.Errorf("disk %d, memory %d, writable %v: %d in all", disk, memory, writable, sum)
				}
			}
			if sum > disk || first < min(disk*8/10, memory/2)-4096 {
				t.Errorf("disk %d, memory %d: %d in all, %d to work in", disk, memory, sum, first)
			}
		}
	}
}
