//go:build linux

package clients

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit bounds one conversation. It is generous: a machine may be busy.
const limit = 5 * time.Minute

// TestClients has each client hold the conversation over stdio, and be interrupted
// over HTTP. It compares what reached the models with docs/clients.md.
func TestClients(t *testing.T) {
	binary := glovebox(t)
	url, token := serve(t, binary)
	var mu sync.Mutex
	var rows []row
	all := slices.Concat(agents(), frameworks(binary))
	t.Run("each", func(t *testing.T) {
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				version := needModule(t, c.module)
				talk := converse(t, binary, c, conditions{}, conversation())
				checkConversation(t, talk)
				w := newWire(t, url)
				late := converse(t, binary, c, conditions{url: w.url, token: token, seconds: "25"}, timeout())
				after := "not tried"
				if c.install != "" {
					after = interrupted(t, binary, c, url, token)
				}
				if !t.Failed() {
					mu.Lock()
					defer mu.Unlock()
					r := newRow(t, c, version, talk, late)
					r["signal of a timeout"], r["interrupt by its user"] = w.sent(), after
					rows = append(rows, r)
					t.Log("\n" + formatTable([]row{r}))
				}
			})
		}
	})
	slices.SortFunc(rows, func(a, b row) int {
		at := func(r row) int { return slices.IndexFunc(all, func(c client) bool { return c.title == r["client"] }) }
		return at(a) - at(b)
	})
	compareTable(t, rows, len(rows) == len(all))
}

// converse has a client follow a script to its end.
func converse(t *testing.T, binary string, c client, where conditions, steps []step) *model {
	t.Helper()
	m := newModel(t, steps)
	m.bare = c.bare
	where.home, where.model = newHome(t), m.url
	work := filepath.Join(where.home, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{
		"HOME=" + where.home, "PATH=" + filepath.Dir(modules(t, ".bin/node")) + ":" + os.Getenv("PATH"),
		"TMPDIR=" + where.home, "NO_COLOR=1", "TERM=dumb", "CI=1", "NO_BROWSER=1",
	}
	if where.url != "" {
		env = append(env, "GLOVEBOX_URL="+where.url, "GLOVEBOX_TOKEN="+where.token)
	}
	if c.install != "" {
		args := []string{"install", c.install}
		if where.url != "" {
			args = append(args, "--url", where.url)
		}
		install := exec.CommandContext(t.Context(), binary, args...)
		install.Env = env
		if out, err := install.CombinedOutput(); err != nil {
			t.Fatalf("glovebox %v: %v\n%s", args, err, out)
		}
	}
	argv, more := c.command(t, where)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = work
	cmd.Env = slices.Concat(env, more)
	// A client has helper processes, which a deadline ends with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	if where.interrupt != nil {
		wait := where.interrupt(m, func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) })
		defer wait()
	}
	out, err := cmd.CombinedOutput()
	if err != nil && where.interrupt == nil {
		t.Errorf("%s: %v", c.title, err)
	}
	serversEnd(t, where.home)
	if where.interrupt == nil && len(m.results) != len(steps) || len(m.faults) > 0 {
		t.Errorf("%d of %d calls of the script were made", len(m.results), len(steps))
	}
	if t.Failed() {
		t.Logf("the model's side:\n%s\n%s printed:\n%.8000s", m.transcript(), c.title, out)
	}
	return m
}

// newHome makes a home directory, with a path that is short enough for sockets.
func newHome(t *testing.T) string {
	t.Helper()
	home, err := os.MkdirTemp("/tmp", "gbc.")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(home); err != nil {
			t.Error(err)
		}
	})
	return home
}

// serversEnd waits for the end of the servers that a client started, and reports
// those that outlive it.
func serversEnd(t *testing.T, home string) {
	t.Helper()
	var left []string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if left = withHome(t, home); len(left) == 0 {
			return
		}
	}
	t.Errorf("processes outlive the client: %q", left)
}

// withHome returns the commands of the processes with that home directory.
func withHome(t *testing.T, home string) []string {
	t.Helper()
	var found []string
	for _, pid := range pidsWithHome(t, home) {
		command, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err == nil && len(command) > 0 {
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

// pidsWithHome returns the processes with that home directory.
func pidsWithHome(t *testing.T, home string) []int {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		t.Fatal(err)
	}
	var found []int
	for _, file := range files {
		env, err := os.ReadFile(file)
		if err != nil || !slices.Contains(strings.Split(string(env), "\x00"), "HOME="+home) {
			continue // it has ended, or belongs to another user
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, pid)
	}
	return found
}

// glovebox returns the program, with a sandbox that works here. Otherwise the test
// is skipped, or fails if gvisor is required.
func glovebox(t *testing.T) string {
	t.Helper()
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "glovebox")
		build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/glovebox")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build: %v\n%s", err, out)
		}
	}
	doctor := exec.CommandContext(t.Context(), binary, "doctor", "--driver", "gvisor", "--state-dir", newHome(t))
	if out, err := doctor.CombinedOutput(); err != nil {
		if required("gvisor") {
			t.Fatalf("GLOVEBOX_REQUIRE has gvisor, which does not work here: %v\n%s", err, out)
		}
		t.Skipf("gvisor does not work here: %v\n%s", err, out)
	}
	return binary
}

// needModule skips the test, or fails it if agents are required, where the module
// of npm is not installed. It returns the module's version.
func needModule(t *testing.T, module string) string {
	t.Helper()
	data, err := os.ReadFile(modules(t, module+"/package.json"))
	if err != nil {
		if required("agents") {
			t.Fatalf("GLOVEBOX_REQUIRE has agents: %v; make clients", err)
		}
		t.Skipf("%s is not installed: make clients", module)
	}
	var p struct{ Version string }
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	return p.Version
}

func required(component string) bool {
	return slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), component)
}

// serve starts a server over HTTP until the end of the test, and returns its URL
// and a token.
func serve(t *testing.T, binary string, flags ...string) (url, token string) {
	t.Helper()
	env := append(os.Environ(), "GLOVEBOX_STATE_DIR="+newHome(t), "GLOVEBOX_DRIVER=gvisor", "NO_COLOR=1")
	create := exec.CommandContext(t.Context(), binary, "token", "create", "clients")
	create.Env = env
	out, err := create.Output()
	if err != nil {
		t.Fatalf("token create: %v", err)
	}
	server := exec.Command(binary, append([]string{"serve", "--listen", "127.0.0.1:0"}, flags...)...)
	server.Env = env
	stderr, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	found := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(found)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if at := mcpURL.FindString(lines.Text()); at != "" && len(found) == 0 {
				found <- at
			}
		}
	}()
	t.Cleanup(func() {
		if err := server.Process.Signal(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		<-read
		if err := server.Wait(); err != nil {
			t.Errorf("glovebox serve: %v", err)
		}
	})
	url, ok := <-found
	if !ok {
		t.Fatal("glovebox serve: no address")
	}
	return url, strings.TrimSpace(string(out))
}

var mcpURL = regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+/mcp`)
