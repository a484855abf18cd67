package process

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

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
	if apart := start(0x7050_0000); !IsOfBox(apart, id) || IsOfBox(apart, sandbox.NewID()) {
		t.Error("a process of a box's own user is not told from others")
	}
	if !IsOfBox(ours, id) || IsOfBox(ours, sandbox.NewID()) {
		t.Error("a process of ours, by name and user, is not told from others")
	}
	if IsOfBox(others, id) {
		t.Error("another user's process with a box's arguments is taken for the box's")
	}
	if err := KillBox(id); err != nil {
		t.Errorf("killBox while another user's process looks like a box's: %v", err)
	}
	if err := unix.Kill(others, 0); err != nil {
		t.Errorf("another user's process was killed: %v", err)
	}
}
