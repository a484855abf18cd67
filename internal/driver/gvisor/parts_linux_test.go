package gvisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/message"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestSandboxArgs(t *testing.T) {
	b := &madeBox{record: message.Record{Spec: driver.Spec{Limits: sandbox.Limits{CPUs: 2.5, MemoryBytes: 96 << 20}}}}
	data, err := json.Marshal(b.bundle(2))
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	args := []string{"runsc-sandbox", "--root=/x", "boot", fmt.Sprintf("--spec-fd=%d", f.Fd()), "--total-memory", "999", "sbx"}
	got := sandboxArgs(args, openedSpec(args))
	if i := slices.Index(got, "--total-memory"); got[i+1] != fmt.Sprint(96<<20) {
		t.Errorf("memory in %q is not the limit", got)
	}
	if i := slices.Index(got, "--cpu-num"); i < 0 || got[i+1] != "3" {
		t.Errorf("CPUs in %q are not the limit, rounded up", got)
	}
	if slices.Contains(args, "--cpu-num") {
		t.Error("the caller's arguments were changed")
	}
	// The offset must stay: gVisor reads the file next.
	if at, err := f.Seek(0, 1); err != nil || at != int64(len(data)) {
		t.Errorf("offset is %d, %v; want %d", at, err, len(data))
	}
	for _, bad := range [][]string{
		{"runsc-sandbox", "boot"},
		{"runsc-sandbox", "boot", "--spec-fd=-1"},
		{"runsc-sandbox", "boot", "--spec-fd=99999"},
	} {
		if got := openedSpec(bad); got != nil {
			t.Errorf("openedSpec(%q) = %v, want nil", bad, got)
		}
	}
}

func TestNextLook(t *testing.T) {
	for room, want := range map[int64]time.Duration{
		0:         shortestLook,
		1 << 20:   shortestLook,
		512 << 20: 125 * time.Millisecond,
		64 << 30:  longestLook,
	} {
		if got := nextLook(room); got != want {
			t.Errorf("nextLook(%d) = %v, want %v", room, got, want)
		}
	}
}

func TestCopyPublic(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	write := func(name string, mode os.FileMode) {
		t.Helper()
		path := filepath.Join(from, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	write("d/public", 0o644)
	write("d/private", 0o640)
	write("d/closed/public", 0o644)
	if err := os.Chmod(filepath.Join(from, "d/closed"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../elsewhere", filepath.Join(from, "d/link")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(from, "d/fifo"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := copyPublic(filepath.Join(from, "d"), filepath.Join(to, "d")); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(filepath.Join(to, "d"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"link", "public"}; !slices.Equal(names, want) {
		t.Errorf("copied %q, want %q: only what everybody may read", names, want)
	}
	if err := copyPublic(filepath.Join(from, "none"), filepath.Join(to, "none")); err != nil {
		t.Errorf("copying what is not there: %v", err)
	}
}

func TestPlan(t *testing.T) {
	m := &maker{} // no control groups
	spec := func(cpus float64) *driver.Spec {
		l := sandbox.DefaultLimits()
		l.CPUs = cpus
		return &driver.Spec{Limits: l}
	}
	p, err := m.plan(spec(1))
	if err != nil || len(p.cpuSet) != 1 || !p.watchMemory || p.group {
		t.Errorf("plan of 1 CPU = %+v, %v; want one processor and watched memory", p, err)
	}
	if _, err := m.plan(spec(0.5)); !errors.Is(err, sandbox.Unsupported) || sandbox.HintOf(err) == "" {
		t.Errorf("plan of half a CPU: %v with hint %q; want it refused with a hint", err, sandbox.HintOf(err))
	}
	allowed := spec(0.5)
	allowed.AllowUnenforced = []sandbox.ControlName{sandbox.ControlCPU}
	if p, err := m.plan(allowed); err != nil || p.cpuSet != nil {
		t.Errorf("plan of half a CPU, allowed unenforced = %+v, %v", p, err)
	}
}

func TestBind(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end := func() {
		if !ended {
			ended = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	defer end()
	here, err := ownCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if err := bind(cmd.Process.Pid, here[:1]); err != nil {
		t.Fatal(err)
	}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(cmd.Process.Pid, &set); err != nil {
		t.Fatal(err)
	}
	if got := cpusOf(&set); !slices.Equal(got, here[:1]) {
		t.Errorf("bound to %v, want %v", got, here[:1])
	}
	end()
	if err := bind(cmd.Process.Pid, here[:1]); err != nil {
		t.Errorf("bind of a process that has ended: %v", err)
	}
}

func TestOwnsProcess(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can start another user's process")
	}
	id := sandbox.NewID()
	start := func(uid uint32) int {
		t.Helper()
		cmd := exec.Command("/bin/sh")
		cmd.Args = []string{"runsc-sandbox", "-c", "sleep 60; :", id}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}, Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
			_ = cmd.Wait()
		})
		// The kernel closes the pipe that Start waits for before it sets the
		// new program's arguments.
		for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
			if args, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cmd.Process.Pid)); strings.Contains(string(args), id) {
				break
			}
		}
		return cmd.Process.Pid
	}
	ours, others := start(0), start(65534)
	if apart := start(usersFirst + 5*usersSize); !ownsProcess(apart, id) || ownsProcess(apart, sandbox.NewID()) {
		t.Error("a process of a box's own user is not told from others")
	}
	if !ownsProcess(ours, id) || ownsProcess(ours, sandbox.NewID()) {
		t.Error("a process of ours, by name and user, is not told from others")
	}
	if ownsProcess(others, id) {
		t.Error("another user's process with a box's arguments is taken for the box's")
	}
	if err := killBox(id); err != nil {
		t.Errorf("killBox while another user's process looks like a box's: %v", err)
	}
	if err := unix.Kill(others, 0); err != nil {
		t.Errorf("another user's process was killed: %v", err)
	}
}

func TestOnceMade(t *testing.T) {
	calls := 0
	it := new(int)
	made := onceMade(func() (*int, error) {
		if calls++; calls == 1 {
			return nil, errors.New("not yet")
		}
		return it, nil
	})
	if _, err := made(); err == nil {
		t.Error("the error was lost")
	}
	for range 2 {
		if got, err := made(); got != it || err != nil {
			t.Errorf("made() = %v, %v after it can be made", got, err)
		}
	}
	if calls != 2 {
		t.Errorf("made %d times", calls)
	}
}

func TestDonated(t *testing.T) {
	args := []string{
		"runsc-sandbox", "--root=/x", "--log-fd=3", "boot", "--io-fds=4,5", "--stdio-fds=[6 7 8]",
		"--pass-fd=9:3", "--start-sync-fd=-1", "--fdlimit=100", "--spec-fd=10", "sbx_fd=12",
	}
	got := slices.Sorted(maps.Keys(donated(args)))
	if want := []int{1, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("donated(%q) = %v, want %v", args, got, want)
	}
}

// TestExplainStart tells a lack of namespaces from that of room on a disk.
func TestExplainStart(t *testing.T) {
	for op, unavailable := range map[string]bool{"fork/exec": true, "write": false} {
		err := explainStart(fmt.Errorf("start: %w", &os.PathError{Op: op, Path: "x", Err: unix.ENOSPC}))
		if got := errors.Is(err, driver.ErrUnavailable); got != unavailable || !errors.Is(err, unix.ENOSPC) {
			t.Errorf("no space to %s: %v; that the driver is unavailable: %v, want %v", op, err, got, unavailable)
		}
	}
}

// TestPauseObeysContext pauses and resumes a box while another operation has it
// awake, as a receipt does that the guest does not answer.
func TestPauseObeysContext(t *testing.T) {
	b := (&Driver{boxes: map[*box]bool{}}).newBox("box")
	defer b.release()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, f := range map[string]func(context.Context) error{
		"pause":   b.Pause,
		"resume":  b.Resume,
		"receipt": func(ctx context.Context) error { _, err := b.Receipt(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		if err := f(ctx); sandbox.KindOf(err) != sandbox.Unavailable || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
	b.asleep.end()
	if err := b.asleep.take(t.Context()); err != nil {
		t.Error(err)
	}
}
