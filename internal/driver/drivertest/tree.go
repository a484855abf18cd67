package drivertest

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A tree is a script that starts processes which are hard to find or to kill. M
// stands for the marker, and alive is the number of processes that sleep on it.
type tree struct {
	name   string
	script string
	alive  int
}

var trees = []tree{
	{"Plain", `sleep M`, 1},
	{"IgnoresTERM", `trap '' TERM INT HUP QUIT; sleep M; sleep M; sleep M`, 1},
	{"Background", `sleep M & sleep M & sleep M`, 3},
	{"DoubleFork", `(sleep M &); (sh -c 'sleep M & exit'); sleep M`, 3},
	{"Setsid", `setsid sleep M & setsid sh -c 'setsid sleep M & sleep M; :' & sleep M`, 4},
	{"CleanEnvironment", `env -i setsid sleep M & env -i sh -c 'sleep M & exit' & sleep M`, 3},
	{"Daemon", `setsid sh -c '(trap "" TERM HUP; exec env -i sleep M) </dev/null >/dev/null 2>&1 &'; sleep M`, 2},
	{"HoldsOutput", `(setsid sh -c 'sleep M; echo never' &); sleep M`, 2},
	{"Stopped", `sleep M & sleep 0.2; kill -STOP $! $$`, 1},
	{"ElsewhereInPipes", `sleep M | cat | setsid cat | sleep M`, 2},
}

// marker returns a number of seconds that no other sleeping process uses.
func marker() string { return strconv.Itoa(1_000_000 + rand.IntN(1_000_000_000)) }

// sleepers counts the processes of the box that have marker as an argument.
func (b *Box) sleepers(t testing.TB, marker string) int {
	t.Helper()
	out := b.MustRun(t, Cmd{
		Shell: "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c '^" + marker + "$'",
		User:  sandbox.Root,
	}).Stdout
	n, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("count the processes of the box: %v", err)
	}
	return n
}

// killTime is the longest time from a run's timeout to its end.
const killTime = 3 * time.Second * raceFactor

// testTree checks that timeouts and SIGKILL end all processes of a tree.
func testTree(t *testing.T, s *suite) {
	b := s.newBox(t)
	for _, tr := range trees {
		t.Run("Timeout/"+tr.name, func(t *testing.T) { treeTimeout(t, b, tr) })
		t.Run("Kill/"+tr.name, func(t *testing.T) { treeKill(t, b, tr) })
	}
	t.Run("Timeout/ManyPieces", func(t *testing.T) { treeRespawn(t, b) })
	t.Run("Timeout/Floods", func(t *testing.T) { treeFloods(t, b) })
	t.Run("Timeout/NobodyReads", func(t *testing.T) { treeUnread(t, b) })
	t.Run("Timeout/InTime", func(t *testing.T) { treeInTime(t, b) })
	t.Run("Leader", func(t *testing.T) { treeLeader(t, b) })
	t.Run("Others", func(t *testing.T) { treeOthers(t, b) })
}

func treeTimeout(t *testing.T, b *Box, tr tree) {
	mark, limit := marker(), 1500*time.Millisecond*raceFactor // enough time to print begun
	r := b.MustRun(t, Cmd{Shell: "echo begun; " + strings.ReplaceAll(tr.script, "M", mark), Timeout: limit})
	checkTimeout(t, r, limit)
	if r.Stdout != "begun\n" {
		t.Errorf("output from before the timeout must be kept: got %q", r.Stdout)
	}
	if n := b.sleepers(t, mark); n != 0 {
		t.Errorf("%d processes of the tree are alive after its timeout: it must be killed whole", n)
	}
}

func checkTimeout(t testing.TB, r Result, limit time.Duration) {
	t.Helper()
	if !r.End.Detail.TimedOut || r.End.Status == guestapi.EndOK {
		t.Errorf("want EndDetail.TimedOut and no success, got %v", r)
	}
	if r.Took < limit-50*time.Millisecond {
		t.Errorf("the end came after %v, before the timeout of %v", r.Took, limit)
	}
	if r.Took > limit+killTime {
		t.Errorf("the end came after %v, want it soon after the timeout of %v", r.Took, limit)
	}
}

func treeKill(t *testing.T, b *Box, tr tree) {
	mark := marker()
	p, _ := b.startReady(t, Sh("echo begun; "+strings.ReplaceAll(tr.script, "M", mark)))
	defer p.Close()
	eventually(t, fmt.Sprintf("the script %q does not make its %d processes", tr.script, tr.alive), func() bool {
		return b.sleepers(t, mark) == tr.alive
	})
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: p.PID()}, guestapi.SIGKILL); err != nil {
		t.Fatalf("Signal(SIGKILL): %v", err)
	}
	if n := b.sleepers(t, mark); n != 0 {
		t.Errorf("%d processes of the tree are alive after SIGKILL was answered: the answer comes when none is left", n)
	}
	r, err := Collect(p, nil)
	if err != nil {
		t.Fatalf("the stream after SIGKILL: %v", err)
	}
	if r.End.ExitCode != nil || r.End.Detail.Signal != 9 {
		t.Errorf("want killed by signal 9, got %v", r)
	}
}

// treeRespawn kills a tree that starts new processes, sessions and orphans all
// the time. It starts 300 processes and then stops by itself.
func treeRespawn(t *testing.T, b *Box) {
	mark, limit := marker(), 1500*time.Millisecond*raceFactor
	script := `spawn() { i=0; while [ $i -lt 150 ]; do (setsid sleep M &); i=$((i+1)); sleep 0.02; done; }
spawn & (spawn &) ; sleep M`
	r := b.MustRun(t, Cmd{Shell: strings.ReplaceAll(script, "M", mark), Timeout: limit})
	checkTimeout(t, r, limit)
	if n := b.sleepers(t, mark); n != 0 {
		t.Errorf("%d processes are alive after the timeout of a tree that forks while it is killed", n)
	}
}

func treeFloods(t *testing.T, b *Box) {
	limit := time.Second * raceFactor
	var total int64
	heap := watchHeap()
	r := b.MustRun(t, Cmd{
		Shell: "trap '' TERM PIPE; yes floods & yes floods >&2 & wait", Timeout: limit,
		OnData: func(d *guestapi.DataEvent) { total += int64(len(d.Stdout) + len(d.Stderr)) },
	})
	checkTimeout(t, r, limit)
	heap.check(t, fmt.Sprintf("an output flood of %d MiB", total>>20), streamHeap)
	b.Answers(t, "after an output flood")
}

// treeUnread checks that the timeout works while the program is blocked because
// its output is not read. A later read must still give the end event.
func treeUnread(t *testing.T, b *Box) {
	mark, limit := marker(), 500*time.Millisecond*raceFactor
	began := time.Now()
	p, err := b.Start(step(t), Cmd{Shell: "sleep " + mark + " & yes floods", Timeout: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.Sleep(limit)
	eventually(t, "the tree of a run whose output nobody reads is alive after its timeout", func() bool {
		return b.sleepers(t, mark) == 0
	})
	r, err := Collect(p, func(*guestapi.DataEvent) {})
	r.Took = time.Since(began)
	if err != nil || !r.End.Detail.TimedOut {
		t.Errorf("reading after the timeout: want the end event with TimedOut, got %v, %v", r, err)
	}
}

func treeInTime(t *testing.T, b *Box) {
	r := b.MustRun(t, Cmd{Shell: "exit 3", Timeout: 20 * time.Second})
	if r.End.Detail.TimedOut || r.End.Code() != 3 {
		t.Errorf("a program that ends in time: want exit code 3 and not TimedOut, got %v", r)
	}
	if r.Took > 10*time.Second {
		t.Errorf("a program that ends at once was reported after %v", r.Took)
	}
}

// treeLeader has a program end at once while its grandchild holds its output
// open.
func treeLeader(t *testing.T, b *Box) {
	mark, limit := marker(), 2*time.Second*raceFactor
	r := b.MustRun(t, Cmd{Shell: "echo done; setsid sleep " + mark + " & exit 7", Timeout: limit})
	if r.Stdout != "done\n" {
		t.Errorf("output of a program that left a process: %v", r)
	}
	if r.Took > limit+killTime {
		t.Errorf("the end came after %v: a process that holds the output open must not hold it up past the timeout of %v", r.Took, limit)
	}
	switch d := r.End.Detail; {
	case d.TimedOut:
		if n := b.sleepers(t, mark); n != 0 {
			t.Errorf("%d processes of the tree are alive after its timeout", n)
		}
	case r.End.Code() != 7:
		t.Errorf("want exit code 7, or TimedOut; got %v", r)
	case b.sleepers(t, mark) > 0 && d.Left == 0:
		t.Errorf("a process was left alive, but EndDetail.Left is 0: %v", r)
	}
	b.MustRun(t, Cmd{Shell: "pkill -9 -f '^sleep " + mark + "'", User: sandbox.Root})
}

// treeOthers checks that a kill ends only the one tree.
func treeOthers(t *testing.T, b *Box) {
	mark := marker()
	p, _ := b.startReady(t, Sh("echo ready; setsid sleep "+mark+" & sleep "+mark))
	defer p.Close()
	other := marker()
	q, _ := b.startReady(t, Sh("echo ready; setsid sleep "+other+" & sleep "+other))
	defer q.Close()
	eventually(t, "the scripts do not make their processes", func() bool {
		return b.sleepers(t, mark) == 2 && b.sleepers(t, other) == 2
	})
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: q.PID()}, guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if _, err := Collect(q, nil); err != nil {
		t.Fatal(err)
	}
	b.MustRun(t, Cmd{Shell: "sleep 600", Timeout: 100 * time.Millisecond})
	if n := b.sleepers(t, mark); n != 2 {
		t.Errorf("killing other runs left %d of 2 processes of this one", n)
	}
	if err := b.Client.Signal(step(t), guestapi.ProcessSelector{PID: p.PID()}, guestapi.SIGKILL); err != nil {
		t.Fatal(err)
	}
}
