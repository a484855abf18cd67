package guest

import (
	"bytes"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// A meter holds the processor time at the last reading.
type meter struct {
	mu   sync.Mutex
	at   time.Time
	used time.Duration
}

// metrics returns the current resource usage of the sandbox.
func (m *meter) metrics(*http.Request, *struct{}) (*guestapi.Metrics, error) {
	now := time.Now()
	out := &guestapi.Metrics{Time: now.Unix(), CPUCount: runtime.NumCPU()}
	out.CPUUsed = m.read(now, processorTime()) * 100 / float64(out.CPUCount)
	text, err := procfs.ReadBounded("/proc/meminfo")
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "read memory: %v", err)
	}
	memory := procfs.ParseMeminfo(text)
	out.MemoryTotal, out.MemoryCache = memory["MemTotal"], memory["Cached"]
	out.MemoryUsed = max(out.MemoryTotal-memory["MemAvailable"], 0)
	var st unix.Statfs_t
	if err := unix.Statfs("/", &st); err != nil {
		return nil, rpc.Errorf(guestapi.CodeInternal, "read disk: %v", err)
	}
	out.DiskTotal = int64(st.Blocks) * st.Bsize
	out.DiskUsed = out.DiskTotal - int64(st.Bfree)*st.Bsize
	return out, nil
}

// read returns how many processors were in use on average since the last call.
func (m *meter) read(now time.Time, used time.Duration) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	span, more := now.Sub(m.at), used-m.used
	m.at, m.used = now, used
	if span <= 0 || more < 0 {
		return 0
	}
	return more.Seconds() / span.Seconds()
}

// tick is the unit of times in /proc.
const tick = time.Second / 100

// processorTime returns the processor time of all processes. It includes ended
// processes: the guest reaps them, so their time is in its cutime and cstime.
func processorTime() time.Duration {
	dir, err := os.Open("/proc")
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	var ticks int64
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		text, err := procfs.ReadBounded("/proc/" + name + "/stat")
		if err != nil {
			continue // it ended
		}
		// The fields follow the name, which is in parentheses and may hold any
		// character.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		const utime, cstime = 11, 14
		if len(fields) <= cstime {
			continue
		}
		for _, f := range fields[utime : cstime+1] {
			n, err := strconv.ParseInt(string(f), 10, 64)
			if err == nil {
				ticks += n
			}
		}
	}
	return time.Duration(ticks) * tick
}
