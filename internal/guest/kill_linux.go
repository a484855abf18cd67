package guest

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
)

// markerName is the variable that marks the descendants of a process. A program
// can drop its marker, but cannot forge another process's.
const markerName = "GLOVEBOX_PROCESS"

// markers makes and checks markers: a process number and a keyed hash of it.
type markers struct{ key [32]byte }

func newMarkers() (*markers, error) {
	m := new(markers)
	_, err := rand.Read(m.key[:])
	return m, err
}

func (m *markers) of(id uint64) string {
	text := strconv.FormatUint(id, 10)
	h := hmac.New(sha256.New, m.key[:])
	h.Write([]byte(text))
	return text + "." + hex.EncodeToString(h.Sum(nil)[:12])
}

// id returns the number in a genuine marker.
func (m *markers) id(marker string) (uint64, bool) {
	text, _, _ := strings.Cut(marker, ".")
	id, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !hmac.Equal([]byte(m.of(id)), []byte(marker)) {
		return 0, false
	}
	return id, true
}

// members returns the processes of p's tree. These are the descendants of p's
// first process, and the processes with its marker or in its session. Orphans
// that began after p and belong to no other process count, too. All are
// descendants of the guest.
func (g *Guest) members(p *process, all map[int]procInfo) []procInfo {
	// The order matters: the snapshot came first, so its children are known by
	// now.
	live := g.children.pids()
	tracked := g.procs.byPID()
	ours := make(map[int]bool)   // descendants that are p's
	others := make(map[int]bool) // that are another's
	var list []procInfo
	for _, d := range descendants(all, g.pid) {
		mine, known := false, false
		switch {
		case d.ppid == g.pid && live[d.pid]:
			mine, known = tracked[d.pid] == p, true
		case ours[d.ppid]:
			mine, known = true, true
		case others[d.ppid]:
			known = true
		default:
			mine, known = g.ownerByTrace(p, d, tracked)
			if !known {
				mine = d.start >= p.began
			}
		}
		if mine {
			ours[d.pid] = true
			list = append(list, d)
		} else if known {
			others[d.pid] = true
		}
	}
	return list
}

// ownerByTrace decides by session and marker whether an orphan is p's.
func (g *Guest) ownerByTrace(p *process, d procInfo, tracked map[int]*process) (mine, known bool) {
	if d.sid == p.child.pid && d.start >= p.began {
		return true, true
	}
	if q := tracked[d.sid]; q != nil && q != p {
		return false, true
	}
	if id, ok := g.markers.id(g.environ(d.pid, markerName)); ok {
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

// killTree kills every process of p's tree and returns when none is left.
func (g *Guest) killTree(p *process) error {
	p.kills.Lock()
	defer p.kills.Unlock()
	return g.killSet(func(all map[int]procInfo) []procInfo { return g.members(p, all) })
}

// killAll kills every descendant of the guest.
func (g *Guest) killAll() error {
	return g.killSet(func(all map[int]procInfo) []procInfo { return descendants(all, g.pid) })
}

// killSet kills the members until none is left.
func (g *Guest) killSet(members func(map[int]procInfo) []procInfo) error {
	deadline := time.Now().Add(maxKill)
	killed := make(marks)
	pause := 100 * time.Microsecond
	for round := 0; ; round++ {
		set, err := living(members)
		if err != nil {
			return err
		}
		if len(set) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return rpc.Errorf(guestapi.CodeInternal, "%d processes survive being killed, the first is %d", len(set), set[0].pid)
		}
		fresh := slices.ContainsFunc(set, func(m procInfo) bool { return !killed.has(m) })
		if fresh && round >= plainRounds {
			if set, err = g.freeze(members, set); err != nil {
				return err
			}
		}
		for _, m := range set {
			killed.add(m)
			g.signalExactly(m, unix.SIGKILL)
		}
		if !fresh || round < plainRounds {
			time.Sleep(pause)
			pause = min(2*pause, 10*time.Millisecond)
		}
	}
}

// freeze stops the members until a scan finds no new ones, and returns them.
// They cannot fork while they are killed then.
func (g *Guest) freeze(members func(map[int]procInfo) []procInfo, set []procInfo) ([]procInfo, error) {
	stopped := make(marks)
	for range maxFreeze {
		fresh := false
		for _, m := range set {
			if stopped.add(m) {
				fresh = true
				g.signalExactly(m, unix.SIGSTOP)
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

func (s marks) has(m procInfo) bool { start, ok := s[m.pid]; return ok && start == m.start }

// add adds m and reports whether it is new.
func (s marks) add(m procInfo) bool {
	if s.has(m) {
		return false
	}
	s[m.pid] = m.start
	return true
}

// living returns the members that are alive.
func living(members func(map[int]procInfo) []procInfo) ([]procInfo, error) {
	all, err := allProcs()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return slices.DeleteFunc(members(all), func(p procInfo) bool { return p.dead() }), nil
}

// signalExactly signals m, unless its pid now belongs to another process.
func (g *Guest) signalExactly(m procInfo, sig unix.Signal) {
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err == nil {
		defer unix.Close(fd)
	}
	if now, ok := readProc(m.pid); !ok || now.start != m.start {
		return
	}
	if err == nil {
		_ = unix.PidfdSendSignal(fd, sig, nil, 0)
		return
	}
	_ = unix.Kill(m.pid, sig)
}
