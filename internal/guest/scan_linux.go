package guest

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A procInfo is the state of a process, as /proc shows it.
type procInfo struct {
	pid, ppid, sid int
	state          byte
	threads        int
	start          uint64 // in clock ticks since boot
}

func (p *procInfo) dead() bool { return p.state == 'Z' || p.state == 'X' }

// readProc reads the state of a process. It returns false if there is none.
func readProc(pid int) (procInfo, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procInfo{}, false
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, _ := unix.Read(fd, buf[:]) // one read returns the whole file, and does not block
	return parseStat(pid, buf[:max(n, 0)])
}

// parseStat parses the text of /proc/PID/stat. The program chooses the name in
// it, which may have parentheses and spaces. So the parsing begins after the
// last parenthesis.
func parseStat(pid int, stat []byte) (procInfo, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return procInfo{}, false
	}
	f := bytes.Fields(stat[i+1:])
	// The fields are: state ppid pgrp session, then num_threads as field 20 and
	// starttime as field 22, where state is field 3.
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

// readSmall reads the beginning of a file of /proc and returns the number of
// bytes, 0 if there is no such file.
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

// allProcs reads the state of every visible process.
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

// descendants returns all descendants of root, parents before their children.
// The guest signals no other process.
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

// hasStrangers reports whether this process has adopted orphans: children that
// it did not start. The OS kernel hands orphans to the main thread, whose list
// of children is cheap to read. It returns true if the list cannot be read.
func (g *Guest) hasStrangers() bool {
	id := strconv.Itoa(g.pid)
	buf := make([]byte, 16<<10)
	n, err := tryReadSmall("/proc/"+id+"/task/"+id+"/children", buf)
	if err != nil || n == len(buf) {
		return true
	}
	known := g.children.pids() // after the list: every child in it is known by now
	for f := range strings.FieldsSeq(string(buf[:n])) {
		pid, err := strconv.Atoi(f)
		if err != nil || !known[pid] {
			return true
		}
	}
	return false
}

// maxEnviron bounds the bytes read from a process's environment.
const maxEnviron = 1 << 20

// environ returns a variable of the environment with which a process was
// started. If root may not read a user's process, environ reads as that user.
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
