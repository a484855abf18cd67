package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A procInfo is what the kernel tells of a process.
type procInfo struct {
	pid, ppid, sid int
	state          byte
	threads        int
	start          uint64 // in clock ticks since the kernel began
}

func (p *procInfo) dead() bool { return p.state == 'Z' || p.state == 'X' }

// readProc reads a process's state. It returns false if there is none such.
func readProc(pid int) (procInfo, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procInfo{}, false
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, _ := unix.Read(fd, buf[:]) // it comes whole, and does not wait
	return parseStat(pid, buf[:max(n, 0)])
}

// parseStat parses the text of /proc/PID/stat. The program's name in it is the
// program's own choice, parentheses and spaces included; so what counts begins
// after the last parenthesis.
func parseStat(pid int, stat []byte) (procInfo, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return procInfo{}, false
	}
	f := bytes.Fields(stat[i+1:])
	// state ppid pgrp session ... num_threads is field 20, starttime 22, where
	// state is field 3.
	if len(f) < 20 || len(f[0]) != 1 {
		return procInfo{}, false
	}
	p := procInfo{pid: pid, state: f[0][0]}
	var err [4]error
	p.ppid, err[0] = strconv.Atoi(string(f[1]))
	p.sid, err[1] = strconv.Atoi(string(f[3]))
	p.threads, err[2] = strconv.Atoi(string(f[17]))
	p.start, err[3] = strconv.ParseUint(string(f[19]), 10, 64)
	for _, e := range err {
		if e != nil {
			return procInfo{}, false
		}
	}
	return p, true
}

// readSmall reads the beginning of a file of /proc, and returns how much; 0 if
// there is none such.
func readSmall(path string, buf []byte) int {
	n, _ := tryReadSmall(path, buf)
	return n
}

// tryReadSmall is readSmall with an error if there is no such file.
func tryReadSmall(path string, buf []byte) (n int, err error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	defer unix.Close(fd)
	for n < len(buf) {
		m, err := unix.Read(fd, buf[n:])
		if err == unix.EINTR {
			continue
		}
		if err != nil || m == 0 {
			break
		}
		n += m
	}
	return n, nil
}

// allProcs reads the state of every process that can be seen.
func allProcs() (map[int]procInfo, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	m := make(map[int]procInfo, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			m[pid] = p
		}
	}
	return m, nil
}

// descendants returns the processes of all that descend from root, parents
// before their children. Nothing else is ever signalled.
func descendants(all map[int]procInfo, root int) []procInfo {
	children := make(map[int][]int)
	for pid, p := range all {
		children[p.ppid] = append(children[p.ppid], pid)
	}
	var list []procInfo
	seen := map[int]bool{root: true}
	queue := []int{root}
	for len(queue) > 0 {
		pid := queue[0]
		queue = queue[1:]
		for _, c := range children[pid] {
			if !seen[c] {
				seen[c] = true
				list = append(list, all[c])
				queue = append(queue, c)
			}
		}
	}
	return list
}

// hasStrangers reports whether this process has children that it did not
// start: orphans that it adopted. The kernel hands orphans to the main thread,
// whose list of children is cheap to read. It reports true if it cannot tell.
func (g *Guest) hasStrangers() bool {
	id := strconv.Itoa(g.pid)
	buf := make([]byte, 16<<10)
	n, err := tryReadSmall("/proc/"+id+"/task/"+id+"/children", buf)
	if err != nil || n == len(buf) {
		return true
	}
	known := g.children.pids() // after the list: what it has is known by now
	for f := range strings.FieldsSeq(string(buf[:n])) {
		pid, err := strconv.Atoi(f)
		if err != nil || !known[pid] {
			return true
		}
	}
	return false
}

// maxEnviron bounds what is read of a process's environment.
const maxEnviron = 1 << 20

// environ returns a variable of the environment that a process was started
// with. Where root may not look at a user's process, that user may.
func (g *Guest) environ(pid int, name string) string {
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	value := ""
	read := func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var buf bytes.Buffer
		if _, err := copyBounded(&buf, f, maxEnviron); err != nil {
			return err
		}
		for entry := range bytes.SplitSeq(buf.Bytes(), []byte{0}) {
			if k, v, ok := bytes.Cut(entry, []byte{'='}); ok && string(k) == name {
				value = string(v)
			}
		}
		return nil
	}
	if read() != nil && !g.cfg.AsSelf {
		var st unix.Stat_t
		if unix.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid != 0 {
			_ = g.as(&account{uid: st.Uid, gid: st.Gid, groups: []uint32{st.Gid}}, read)
		}
	}
	return value
}
