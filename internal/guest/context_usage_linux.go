package guest

import (
	"bytes"
	"strconv"
	"time"
)

// usage is what a process used so far.
type usage struct {
	cpu  time.Duration
	peak int64 // bytes
}

// usage reads what the interpreter, and the children that it waited for, used.
func (k *interpreter) usage() usage {
	const tick = time.Second / 100 // USER_HZ, which is 100 everywhere
	dir := "/proc/" + strconv.Itoa(k.p.child.pid)
	var buf [4096]byte
	var u usage
	stat := buf[:readSmall(dir+"/stat", buf[:])]
	if f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]); len(f) > 14 {
		for _, field := range f[11:15] { // utime, stime, cutime, cstime
			if n, err := strconv.ParseInt(string(field), 10, 64); err == nil {
				u.cpu += time.Duration(n) * tick
			}
		}
	}
	status := buf[:readSmall(dir+"/status", buf[:])]
	for line := range bytes.Lines(status) {
		if v, ok := bytes.CutPrefix(line, []byte("VmHWM:")); ok {
			if f := bytes.Fields(v); len(f) > 0 {
				n, _ := strconv.ParseInt(string(f[0]), 10, 64)
				u.peak = n << 10
			}
		}
	}
	return u
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
