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

// A result is the outcome of one module's tests.
type result struct {
	Suite   string  `json:"suite"`
	Module  string  `json:"module"`
	Result  string  `json:"result"`
	Tests   int     `json:"tests"`
	Skipped int     `json:"skipped"`
	Seconds float64 `json:"seconds"`
	// Status is the exit status of the module's program, 128 plus the number of
	// a signal, or -1 after a timeout.
	Status int `json:"status,omitempty"`
	// Failed are the names of the failed tests, sorted.
	Failed []string `json:"failed,omitempty"`
}

// A program is a process that runs tests and prints the results.
type program struct {
	argv []string
	dir  string
	env  []string
}

// maxOutput is the size of a module's output that is parsed, in bytes.
const maxOutput = 32 << 20

// exec runs p in its own session and kills its process group at its end or after
// limit. It returns the output, including standard error, and the exit status,
// which is -1 after a timeout.
func (p program) exec(limit time.Duration) (out []byte, status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(environment(), p.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	// A test may leave a process that holds the pipe open.
	cmd.WaitDelay = 5 * time.Second
	text := &bounded{left: maxOutput}
	cmd.Stdout, cmd.Stderr = text, text
	err = cmd.Run()
	if cmd.Process == nil {
		return nil, 0, fmt.Errorf("start %s: %w", p.argv[0], err)
	}
	// Kill the processes that the tests left; usually there are none.
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

// environment returns the environment of all tests, in the sandbox and on the
// host.
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

// bounded keeps the first left bytes that are written to it.
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
