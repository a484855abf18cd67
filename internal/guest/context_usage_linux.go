package guest

import (
	"bytes"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// cpu returns the processor time that the interpreter used so far, without its
// children's. It is one system call, for every run makes it twice.
func (k *interpreter) cpu() time.Duration {
	// The kernel's name for the clock of another process's running time.
	const ofProcess = 2
	clock := ^int32(k.p.child.pid)<<3 | ofProcess
	var ts unix.Timespec
	if unix.ClockGettime(clock, &ts) != nil {
		return 0
	}
	return time.Duration(ts.Nano())
}

// glimpse is how long a run takes at most that is not asked for its memory: the
// answer would cost more than the run.
const glimpse = 5 * time.Millisecond

// peak returns the most memory that the interpreter had at once, in bytes, as
// far as its kernel tells. After short runs it is what was found before.
func (k *interpreter) peak(took time.Duration) int64 {
	known := k.peakBytes.Load()
	if known < 0 || known > 0 && took < glimpse {
		return max(known, 0)
	}
	known = -1 // this kernel does not tell
	var buf [4096]byte
	status := buf[:readSmall("/proc/"+strconv.Itoa(k.p.child.pid)+"/status", buf[:])]
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

// children counts the processes that the interpreter's main thread has, and
// that live.
func (k *interpreter) children() int {
	pid := strconv.Itoa(k.p.child.pid)
	var buf [4096]byte
	n := 0
	for f := range bytes.FieldsSeq(buf[:readSmall("/proc/"+pid+"/task/"+pid+"/children", buf[:])]) {
		if child, err := strconv.Atoi(string(f)); err == nil {
			if info, ok := readProc(child); ok && !info.dead() {
				n++
			}
		}
	}
	return n
}
