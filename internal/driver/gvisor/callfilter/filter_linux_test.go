package callfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/bpf"
)

// TestRefusedCalls installs the filter on a thread, which ends with the test,
// and calls what it refuses and what is next to that.
func TestRefusedCalls(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	type result struct {
		call      string
		got, want error
	}
	results := make(chan []result)
	go func() {
		runtime.LockOSThread() // and never unlocked
		if err := refuseCalls(); err != nil {
			results <- []result{{"install", err, nil}}
			return
		}
		_, _, membarrier := unix.RawSyscall(unix.SYS_MEMBARRIER, 0, 0, 0)
		all := []result{
			{"membarrier", membarrier, unix.ENOSYS},
			{"chmod 4755", unix.Fchmodat(unix.AT_FDCWD, file, 0o4755, 0), unix.EPERM},
			{"chmod 2755", unix.Fchmodat(unix.AT_FDCWD, file, 0o2755, 0), unix.EPERM},
			{"chmod 1755", unix.Fchmodat(unix.AT_FDCWD, file, 0o1755, 0), nil},
			{"mkdir 2777", unix.Mkdirat(unix.AT_FDCWD, filepath.Join(dir, "d"), 0o2777), unix.EPERM},
			{"mkdir 777", unix.Mkdirat(unix.AT_FDCWD, filepath.Join(dir, "d"), 0o777), nil},
		}
		for _, r := range refusedRequests() {
			// 1 leaves the processor as it is, should it be let through.
			_, _, errno := unix.RawSyscall(uintptr(r.nr), uintptr(r.request), 1, 0)
			all = append(all, result{fmt.Sprintf("call %d of %#x", r.nr, r.request), errno, r.errno})
		}
		results <- all
	}()
	for _, r := range <-results {
		if !errors.Is(r.got, r.want) {
			t.Errorf("%s: %v, want %v", r.call, r.got, r.want)
		}
	}
}

// TestForeignArchitectures has the filter judge a call that it allows, of each
// architecture that a call can be of.
func TestForeignArchitectures(t *testing.T) {
	for _, arch := range []uint32{unix.AUDIT_ARCH_X86_64, unix.AUDIT_ARCH_I386, unix.AUDIT_ARCH_AARCH64, unix.AUDIT_ARCH_ARM} {
		want := refusedAsUnknown
		if arch == nativeArch {
			want = unix.SECCOMP_RET_ALLOW
		}
		if got := judge(t, arch, unix.SYS_GETPID); got != want {
			t.Errorf("a call of architecture %#x: %#x, want %#x", arch, got, want)
		}
	}
}

const refusedAsUnknown = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)

// judge returns what the filter answers to a call without arguments.
func judge(t *testing.T, arch, nr uint32) uint32 {
	t.Helper()
	var filter []bpf.Instruction
	for _, i := range callFilter() {
		filter = append(filter, bpf.Instruction{OpCode: i.Code, JumpIfTrue: i.Jt, JumpIfFalse: i.Jf, K: i.K})
	}
	program, err := bpf.Compile(filter, false)
	if err != nil {
		t.Fatal(err)
	}
	data := binary.NativeEndian.AppendUint32(nil, nr)
	data = binary.NativeEndian.AppendUint32(data, arch)
	answer, err := bpf.Exec[bpf.NativeEndian](program, append(data, make([]byte, 56)...))
	if err != nil {
		t.Fatal(err)
	}
	return answer
}
