package process

import (
	"os/exec"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

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
	here, err := OwnCPUs()
	if err != nil {
		t.Fatal(err)
	}
	if err := Bind(cmd.Process.Pid, here[:1]); err != nil {
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
	if err := Bind(cmd.Process.Pid, here[:1]); err != nil {
		t.Errorf("bind of a process that has ended: %v", err)
	}
}
