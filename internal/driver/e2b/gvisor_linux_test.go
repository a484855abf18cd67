package e2b_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestSnapshots runs the suite's group of snapshots. Its E2B is the real program with the
// driver gvisor, because the driver of the other tests keeps no memory.
func TestSnapshots(t *testing.T) {
	program := os.Getenv("GLOVEBOX_TEST_PROGRAM")
	if program == "" {
		t.Skip("GLOVEBOX_TEST_PROGRAM names no program")
	}
	url, key := serveProgram(t, program)
	h := harness
	h.Name, h.Groups = "e2b-gvisor", []string{"Snapshot"}
	h.Open = func(dir string) (driver.Driver, error) {
		d, err := e2b.New(e2b.Options{StateDir: dir, Key: key, APIURL: url, SandboxURL: url})
		if err != nil {
			return nil, err
		}
		return unisolated{d}, nil
	}
	h.Spec = func() *driver.Spec {
		s := spec()
		// E2B's programs have more processors and memory than the suite asks for.
		s.AllowUnenforced = append(s.AllowUnenforced, sandbox.ControlCPU, sandbox.ControlMemory, sandbox.ControlDisk)
		return s
	}
	drivertest.Run(t, h)
}

// serveProgram serves E2B's protocol with the driver gvisor until the end of the test, and
// returns the URL and an API key.
func serveProgram(t *testing.T, program string) (url, key string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "e2bgv") // short, for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	env := append(os.Environ(), "GLOVEBOX_STATE_DIR="+dir, "GLOVEBOX_DRIVER=gvisor", "NO_COLOR=1")
	doctor := exec.CommandContext(t.Context(), program, "doctor")
	doctor.Env = env
	if out, err := doctor.CombinedOutput(); err != nil {
		if strings.Contains(os.Getenv("GLOVEBOX_REQUIRE"), "gvisor") {
			t.Fatalf("GLOVEBOX_REQUIRE has gvisor, which does not work here: %v\n%s", err, out)
		}
		t.Skipf("gvisor does not work here: %v\n%s", err, out)
	}
	server := exec.Command(program, "serve", "--listen", "127.0.0.1:0", "--e2b-listen", "127.0.0.1:0")
	server.Env = env
	said, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	address, read := make(chan string, 1), make(chan struct{})
	go func() {
		defer close(read)
		defer close(address)
		for lines := bufio.NewScanner(said); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "serving E2B's SDKs at "); ok {
				address <- at
			} else if strings.Contains(lines.Text(), "ERROR") {
				t.Log(lines.Text())
			}
		}
	}()
	t.Cleanup(func() {
		err := server.Process.Signal(os.Interrupt)
		<-read
		if err := errors.Join(err, server.Wait()); err != nil {
			t.Errorf("glovebox serve: %v", err)
		}
	})
	url, ok := <-address
	if !ok {
		t.Fatal("glovebox serve does not serve E2B's protocol")
	}
	token := exec.CommandContext(t.Context(), program, "token", "create", "alice", "--e2b")
	token.Env = env
	out, err := token.Output()
	if err != nil {
		t.Fatalf("token create: %v\n%s", err, out)
	}
	return url, strings.TrimSpace(string(out))
}
