package contexts

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
)

// cpu returns the processor time of the interpreter without its children's. It
// is a single system call, as every run makes it twice.
func (it *interpreter) cpu() time.Duration {
	// Linux's type for the clock of another process's CPU time.
	const ofProcess = 2
	clock := ^int32(it.process.PID())<<3 | ofProcess
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
func (it *interpreter) peak(took time.Duration) int64 {
	known := it.peakBytes.Load()
	if known < 0 || known > 0 && took < glimpse {
		return max(known, 0)
	}
	known = -1 // the OS kernel does not report it
	var buf [4096]byte
	status := buf[:procfs.ReadSmall("/proc/"+strconv.Itoa(it.process.PID())+"/status", buf[:])]
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			if f := bytes.Fields(v); len(f) > 0 {
				if n, err := strconv.ParseInt(string(f[0]), 10, 64); err == nil {
					known = n << 10
				}
			}
		}
	}
	it.peakBytes.Store(known)
	return max(known, 0)
}

// children counts the live children of the interpreter's main thread.
func (it *interpreter) children() int {
	pid := strconv.Itoa(it.process.PID())
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
