package callfilter

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// closeAsI386 is machine code that closes descriptor -1 by the entry and the number
// of 32-bit programs, and ends with the error that this gives.
var closeAsI386 = []byte{
	0xbb, 0xff, 0xff, 0xff, 0xff, // mov ebx, -1
	0xb8, 0x06, 0x00, 0x00, 0x00, // mov eax, 6: close(2) there
	0xcd, 0x80, // int 0x80
	0xf7, 0xd8, // neg eax
	0x89, 0xc7, // mov edi, eax
	0xb8, 0x3c, 0x00, 0x00, 0x00, // mov eax, 60: exit(2) here
	0x0f, 0x05, // syscall
}

// TestForeignCalls starts a program as a supervisor is started, which calls the
// kernel as programs of another architecture do; and has the filter judge x32
// calls, which few kernels know.
func TestForeignCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(path, programOf(t, closeAsI386), 0o700); err != nil {
		t.Fatal(err)
	}
	run := func(start func(*exec.Cmd) error) syscall.WaitStatus {
		t.Helper()
		cmd := exec.Command(path)
		if err := start(cmd); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); !errors.As(err, new(*exec.ExitError)) {
			t.Fatalf("the program ended with %v", err)
		}
		return cmd.ProcessState.Sys().(syscall.WaitStatus)
	}
	if free := run((*exec.Cmd).Start); free.ExitStatus() != int(unix.EBADF) {
		t.Logf("this kernel has no calls of 32-bit programs: %#x", free)
	} else if got := run(Start); got.ExitStatus() != int(unix.ENOSYS) {
		t.Errorf("close(-1) of a 32-bit program ends with %#x (error %d), want error %d", got, got.ExitStatus(), unix.ENOSYS)
	}
	const x32 = 0x40000000
	for _, nr := range []uint32{unix.SYS_GETPID, unix.SYS_CHMOD, unix.SYS_FCHMODAT2} {
		if got := judge(t, nativeArch, x32|nr); got != refusedAsUnknown {
			t.Errorf("call %d by its x32 number: %#x, want %#x", nr, got, refusedAsUnknown)
		}
	}
}

// programOf returns a program of this machine code and nothing else.
func programOf(t *testing.T, code []byte) []byte {
	t.Helper()
	const base, headers = 0x400000, 64 + 56
	size := uint64(headers + len(code))
	header := elf.Header64{
		Type: uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: base + headers, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA], header.Ident[elf.EI_VERSION] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)
	segment := elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Filesz: size, Memsz: size, Align: 0x1000}
	var program bytes.Buffer
	for _, part := range []any{header, segment, code} {
		if err := binary.Write(&program, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return program.Bytes()
}
