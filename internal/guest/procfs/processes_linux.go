package procfs

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A Process is the state of a process, as /proc shows it.
type Process struct {
	PID, PPID, SID int
	TTY            int // device number of its terminal; 0 without one, and always in gVisor
	State          byte
	Threads        int
	Start          uint64 // in clock ticks since boot
}

// Dead reports whether the process has ended and is not reaped yet.
func (p *Process) Dead() bool { return p.State == 'Z' || p.State == 'X' }

// Read reads the state of a process. It returns false if there is none.
func Read(pid int) (Process, bool) {
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	defer unix.Close(fd)
	var buf [1024]byte
	n, _ := unix.Read(fd, buf[:]) // one read returns the whole file, and does not block
	return parseStat(pid, buf[:max(n, 0)])
}

// parseStat parses the text of /proc/PID/stat. The program chooses the name in
// it, which may have parentheses and spaces. So the parsing begins after the
// last parenthesis.
func parseStat(pid int, stat []byte) (Process, bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return Process{}, false
	}
	f := bytes.Fields(stat[i+1:])
	// The fields are: state ppid pgrp session tty_nr, then num_threads as field 20 and
	// starttime as field 22, where state is field 3.
	if len(f) < 20 || len(f[0]) != 1 {
		return Process{}, false
	}
	p := Process{PID: pid, State: f[0][0]}
	var err [5]error
	p.PPID, err[0] = strconv.Atoi(string(f[1]))
	p.SID, err[1] = strconv.Atoi(string(f[3]))
	p.Threads, err[2] = strconv.Atoi(string(f[17]))
	p.Start, err[3] = strconv.ParseUint(string(f[19]), 10, 64)
	p.TTY, err[4] = strconv.Atoi(string(f[4]))
	for _, e := range err {
		if e != nil {
			return Process{}, false
		}
	}
	return p, true
}

// All reads the state of every visible process.
func All() (map[int]Process, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	m := make(map[int]Process, len(names))
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := Read(pid); ok {
			m[pid] = p
		}
	}
	return m, nil
}

// Descendants returns all descendants of root, parents before their children.
// The guest signals no other process.
func Descendants(all map[int]Process, root int) []Process {
	children := make(map[int][]int)
	for pid, p := range all {
		children[p.PPID] = append(children[p.PPID], pid)
	}
	var list []Process
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
