package process

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/procfs"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// trees finds and kills the trees of processes.
type trees struct {
	pid      int // of the guest
	asSelf   bool
	accounts *account.Accounts
	children *reaper
	table    *table
	markers  *markers
}

// members returns the processes of p's tree. These are the descendants of p's
// first process, the processes with its marker or in its session, and its
// delegates. Orphans and delegates that began after p and belong to no other
// process count, too. All are
// descendants of the guest.
func (ts *trees) members(p *Process, all map[int]procfs.Process) []procfs.Process {
	// The order matters: the snapshot came first, so its children are known by
	// now.
	live := ts.children.children()
	tracked := ts.table.byPID()
	ours := make(map[int]bool)   // descendants that are p's
	others := make(map[int]bool) // that are another's
	var list []procfs.Process
	for _, d := range procfs.Descendants(all, ts.pid) {
		mine, known := false, false
		child := live[d.PID]
		switch {
		case d.PPID == ts.pid && child != nil && !child.delegate:
			mine, known = tracked[d.PID] == p, true
		case d.PPID == ts.pid && child != nil && child.owner != 0:
			mine, known = child.owner == p.id, true
		case ours[d.PPID]:
			mine, known = true, true
		case others[d.PPID]:
			known = true
		default:
			mine, known = ts.ownerByTrace(p, d, tracked)
			if !known {
				mine = d.Start >= p.began
			}
		}
		if mine {
			ours[d.PID] = true
			list = append(list, d)
		} else if known {
			others[d.PID] = true
		}
	}
	// The first process is the first to be killed. Otherwise it could see the end of
	// a delegate, and exit by itself.
	if i := slices.IndexFunc(list, func(m procfs.Process) bool { return m.PID == p.child.pid }); i > 0 {
		list[0], list[i] = list[i], list[0]
	}
	return list
}

// ownerByTrace decides by session and marker whether an orphan is p's.
func (ts *trees) ownerByTrace(p *Process, d procfs.Process, tracked map[int]*Process) (mine, known bool) {
	if d.SID == p.child.pid && d.Start >= p.began {
		return true, true
	}
	if q := tracked[d.SID]; q != nil && q != p {
		return false, true
	}
	if c := ts.children.child(d.SID); c != nil && c.delegate && c.owner != 0 {
		return c.owner == p.id, true
	}
	if id, ok := ts.markers.id(ts.environ(d.PID, MarkerName)); ok {
		return id == p.id, true
	}
	return false, false
}

const (
	// plainRounds is the number of rounds in which killSet does not stop a tree
	// before killing it. A tree that still has new members then grows while it
	// dies, and is stopped first.
	plainRounds = 3
	// maxFreeze bounds the scans of a tree while it is being stopped.
	maxFreeze = 8
	// maxKill bounds the killing of a tree.
	maxKill = 10 * time.Second
)

// kill kills every process of p's tree and returns when none is left.
func (ts *trees) kill(p *Process) error {
	p.kills.Lock()
	defer p.kills.Unlock()
	return killSet(func(all map[int]procfs.Process) []procfs.Process { return ts.members(p, all) })
}

// killAll kills every descendant of the guest.
func (ts *trees) killAll() error {
	return killSet(func(all map[int]procfs.Process) []procfs.Process { return procfs.Descendants(all, ts.pid) })
}

// killSet kills the members until none is left. A scan is not atomic: it misses a
// child with a low pid whose parent ended before its own turn in the scan. So after a
// kill, two scans in sequence must be empty.
func killSet(members func(map[int]procfs.Process) []procfs.Process) error {
	deadline := time.Now().Add(maxKill)
	killed := make(marks)
	pause := 100 * time.Microsecond
	for round, empty := 0, false; ; round++ {
		set, err := living(members)
		if err != nil {
			return err
		}
		if len(set) == 0 {
			if empty || len(killed) == 0 {
				return nil
			}
			empty = true
			continue
		}
		empty = false
		if time.Now().After(deadline) {
			return rpc.Errorf(guestapi.CodeInternal, "%d processes survive being killed, the first is %d", len(set), set[0].PID)
		}
		fresh := slices.ContainsFunc(set, func(m procfs.Process) bool { return !killed.has(m) })
		if fresh && round >= plainRounds {
			if set, err = freeze(members, set); err != nil {
				return err
			}
		}
		for _, m := range set {
			killed.add(m)
			signalExactly(m, unix.SIGKILL)
		}
		if !fresh || round < plainRounds {
			time.Sleep(pause)
			pause = min(2*pause, 10*time.Millisecond)
		}
	}
}

// freeze stops the members until a scan finds no new ones, and returns them.
// They cannot fork while they are killed then.
func freeze(members func(map[int]procfs.Process) []procfs.Process, set []procfs.Process) ([]procfs.Process, error) {
	stopped := make(marks)
	for range maxFreeze {
		fresh := false
		for _, m := range set {
			if stopped.add(m) {
				fresh = true
				signalExactly(m, unix.SIGSTOP)
			}
		}
		if !fresh {
			break
		}
		var err error
		if set, err = living(members); err != nil {
			return nil, err
		}
	}
	return set, nil
}

// marks is a set of processes: the start time by pid. A pid alone does not
// identify a process, as pids are reused.
type marks map[int]uint64

func (s marks) has(m procfs.Process) bool { start, ok := s[m.PID]; return ok && start == m.Start }

// add adds m and reports whether it is new.
func (s marks) add(m procfs.Process) bool {
	if s.has(m) {
		return false
	}
	s[m.PID] = m.Start
	return true
}

// living returns the members that are alive.
func living(members func(map[int]procfs.Process) []procfs.Process) ([]procfs.Process, error) {
	all, err := procfs.All()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return slices.DeleteFunc(members(all), func(p procfs.Process) bool { return p.Dead() }), nil
}

// signalExactly signals m, unless its pid now belongs to another process.
func signalExactly(m procfs.Process, sig unix.Signal) {
	fd, err := unix.PidfdOpen(m.PID, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if now, ok := procfs.Read(m.PID); !ok || now.Start != m.Start {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		return
	}
	_ = unix.Kill(m.PID, sig)
}

// left returns the number of living processes of p's tree.
func (ts *trees) left(p *Process) int {
	if !ts.hasStrangers() {
		return 0
	}
	left, err := living(func(all map[int]procfs.Process) []procfs.Process { return ts.members(p, all) })
	if err != nil {
		return 0
	}
	return len(left)
}

// hasStrangers reports whether this process has adopted orphans, which are
// children that it did not start, or has delegates. The OS kernel hands orphans to the main thread, whose list
// of children is cheap to read. It returns true if the list cannot be read.
func (ts *trees) hasStrangers() bool {
	id := strconv.Itoa(ts.pid)
	buf := make([]byte, 16<<10)
	n, err := procfs.TryReadSmall("/proc/"+id+"/task/"+id+"/children", buf)
	if err != nil || n == len(buf) {
		return true
	}
	known := ts.children.children() // after the list: every child in it is known by now
	for f := range strings.FieldsSeq(string(buf[:n])) {
		pid, err := strconv.Atoi(f)
		if err != nil || known[pid] == nil || known[pid].delegate {
			return true
		}
	}
	return false
}

// maxEnviron bounds the bytes read from a process's environment.
const maxEnviron = 1 << 20

// environ returns a variable of the environment with which a process was
// started.
func (ts *trees) environ(pid int, name string) string {
	path := "/proc/" + strconv.Itoa(pid) + "/environ"
	value := ""
	ts.look(pid, func() error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var buf bytes.Buffer
		if _, err := io.Copy(&buf, io.LimitReader(f, maxEnviron)); err != nil {
			return err
		}
		for entry := range bytes.SplitSeq(buf.Bytes(), []byte{0}) {
			if k, v, ok := bytes.Cut(entry, []byte{'='}); ok && string(k) == name {
				value = string(v)
			}
		}
		return nil
	})
	return value
}

// look calls read, which reads a file of a process. If root may not read a user's
// process, look calls it again as that user.
func (ts *trees) look(pid int, read func() error) {
	if read() == nil || ts.asSelf {
		return
	}
	var st unix.Stat_t
	if unix.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && st.Uid != 0 {
		_ = ts.accounts.As(&account.Account{UID: st.Uid, GID: st.Gid, Groups: []uint32{st.Gid}}, read)
	}
}
