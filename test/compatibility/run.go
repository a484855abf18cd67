//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// The results of a module.
const (
	pass    = "pass"
	fail    = "fail"
	skip    = "skip"
	timeout = "timeout"
)

// A result is how the tests of one module came out.
type result struct {
	Suite   string  `json:"suite"`
	Module  string  `json:"module"`
	Result  string  `json:"result"`
	Tests   int     `json:"tests"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
	// Status is how the module's program ended: its exit status, 128 and the
	// number of a signal, or -1 if its time was over.
	Status int `json:"status,omitempty"`
	// Failed names the tests that failed, sorted.
	Failed []string `json:"failed,omitempty"`
}

// A program is what runs tests: one process, whose output is read.
type program struct {
	argv []string
	dir  string
	env  []string
}

// maxOutput bounds the output of a module that is looked at.
const maxOutput = 32 << 20

// exec runs p in a process group of its own, which ends with it or when its time
// is over. It returns the output, standard error included, and the exit status,
// -1 when the time was over.
func (p program) exec(limit time.Duration) (out []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(environment(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A test may leave a process that has the pipe.
	cmd.WaitDelay = 5 * time.Second
	text := &bounded{left: maxOutput}
	cmd.Stdout, cmd.Stderr = text, text
	err = cmd.Run()
	if cmd.Process == nil {
		return nil, 0, fmt.Errorf("start %s: %w", p.argv[0], err)
	}
	// What the tests left goes with them; there is usually nothing.
	if killErr := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL); killErr != nil && !errors.Is(killErr, syscall.ESRCH) && !errors.Is(killErr, syscall.EPERM) {
		return nil, 0, fmt.Errorf("end what %s left: %w", p.argv[0], killErr)
	}
	if ctx.Err() != nil {
		return text.Bytes(), -1, nil
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if status = exit.ExitCode(); status < 0 {
			status = 128 + int(exit.Sys().(syscall.WaitStatus).Signal())
		}
		return text.Bytes(), status, nil
	}
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	return text.Bytes(), cmd.ProcessState.ExitCode(), err
}

// environment is that of all tests, here and there.
func environment() []string {
	home, tmp := os.Getenv("HOME"), os.Getenv("TMPDIR")
	if tmp == "" {
		tmp = "/tmp"
	}
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
		"HOME=" + home, "TMPDIR=" + tmp, "LANG=C.UTF-8", "TERM=dumb",
	}
}

// bounded keeps the first bytes that are written to it.
type bounded struct {
	bytes.Buffer
	left int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.left)
	b.left -= n
	b.Buffer.Write(p[:n])
	return len(p), nil
}
