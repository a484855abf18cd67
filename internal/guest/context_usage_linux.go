package guest

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// cpu returns the processor time of the interpreter without its children's. It
// is a single system call, as every run makes it twice.
func (k *interpreter) cpu() time.Duration {
	// Linux's type for the clock of another process's CPU time.
	const ofProcess = 2
	clock := ^int32(k.p.child.pid)<<3 | ofProcess
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// glimpse is the duration below which a run does not measure memory. The
// measurement would cost more than the run.
const glimpse = 5 * time.Millisecond

// peak returns the peak memory of the interpreter in bytes, or 0 if the OS
// kernel does not report it. After a short run it is the value measured before.
func (k *interpreter) peak(took time.Duration) int64 {
	known := k.peakBytes.Load()
	if known < 0 || known > 0 && took < glimpse {
		return max(known, 0)
	}
	known = -1 // the OS kernel does not report it
	var buf [4096]byte
	status := buf[:procfs.ReadSmall("/proc/"+strconv.Itoa(k.p.child.pid)+"/status", buf[:])]
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			if f := bytes.Fields(v); len(f) > 0 {
				if n, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil {
					known = n << 10
				}
			}
		}
	}
	k.peakBytes.Store(known)
	return max(known, 0)
}

// children counts the live children of the interpreter's main thread.
func (k *interpreter) children() int {
	pid := strconv.Itoa(k.p.child.pid)
	var buf [4096]byte
	n := 0
	for f := range bytes.FieldsSeq(buf[:procfs.ReadSmall("/proc/"+pid+"/task/"+pid+"/children", buf[:])]) {
		if child, err := strconv.Atoi(string(f)); err == nil {
			if info, ok := procfs.Read(child); ok && !info.Dead() {
				n++
			}
		}
	}
	return n
}
