//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// soakEnv says how long the soak takes, like 10m; default soakTime.
	soakEnv     = "GLOVEBOX_SOAK"
	soakTime    = 40 * time.Second // long enough for each fault twice
	soakMore    = time.Minute      // for machines on which that is too little
	soakClients = 6
	// soakDisk is the size of the server's disk, where it has one of its own. The settings
	// of TestGvisorSoak allow most of it: 192 MiB of writable layers, some 100 MiB of
	// workspaces, 64 MiB of logs, a build of 80 MiB, and a prototype of 100 MiB.
	soakDisk = 640 << 20
	// soakMemory bounds a server's own memory at the end.
	soakMemory = 512 << 20
	// soakChecked bounds the old results that are asked for again.
	soakChecked = 100
)

// A soak has clients, each a principal of its own, run programs of all kinds in
// more sandboxes than the server may have. Meanwhile the server and sandboxes are
// killed, its disk fills up, and a hostile principal takes all it can.
type soak struct {
	t                        *testing.T
	binary, config, dir, url string
	tokens                   map[string]string // by principal
	client                   *http.Client
	groups                   []string // the control groups of the server; none are those of the test

	server *exec.Cmd
	log    bytes.Buffer // of all servers, one after the other

	mu     sync.Mutex
	ids    map[string]bool // sandboxes that were ever seen
	acked  map[string]ack  // by run that finished
	lines  map[string]int  // acknowledged lines in the workspace of each client
	counts map[string]int  // of ends
	errors []string        // of calls

	boxKills atomic.Int64
	faults   atomic.Int64
}

// An ack is what a finished run printed, and whose it is.
type ack struct{ who, printed string }

// TestGvisorSoak is what a server has to bear, for a while. In the end every
// result that was acknowledged can be read again, every line that a program
// wrote to its workspace is there, and nothing is left of any sandbox.
func TestGvisorSoak(t *testing.T) {
	long := soakTime
	if os.Geteuid() != 0 {
		long /= 2 // beside the one as root
	}
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	names := []string{mallory}
	for n := range soakClients {
		names = append(names, client(n))
	}
	s := startSoak(t, soakDisk, "pool: {size: 2}\n"+
		"sandbox: {count: 4, queue: 20s, evict_after: 1s, default: {memory: 128MiB, disk: 32MiB}}\n"+
		"workspace: {size: 32MiB}\n"+
		"run: {log_size: 16MiB, log_space: 64MiB}\n", names...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A machine that is slow gets the time for as much to happen.
	begun := time.Now()
	over := func() bool { return time.Since(begun) > long && s.enough() || time.Since(begun) > long+soakMore }
	var clients sync.WaitGroup
	clients.Go(func() { s.attack(ctx) })
	for n := range soakClients {
		clients.Go(func() { s.work(ctx, n) })
	}
	s.harm(ctx, over)
	cancel()
	clients.Wait()
	s.check()
	s.end()
	t.Logf("%d faults, %d of them sandboxes killed; ends: %v", s.faults.Load(), s.boxKills.Load(), s.counts)
	slices.Sort(s.errors)
	for i := 0; i < len(s.errors); i += max(1, len(s.errors)/10) {
		t.Logf("one of %d errors: %.300s", len(s.errors), s.errors[i])
	}
	if !s.enough() {
		t.Error("too little happened to have been a test")
	}
}

// enough reports whether what happened is a test.
func (s *soak) enough() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.counts["ok"] >= soakClients && s.faults.Load() >= 3
}

// startSoak starts a server with settings, for the principals with those names. If this
// is root and disk is not 0, the server has a disk of its own of that many bytes.
func startSoak(t *testing.T, disk int64, settings string, names ...string) *soak {
	t.Helper()
	s := &soak{
		t: t, tokens: map[string]string{}, binary: os.Getenv("GLOVEBOX_TEST_BINARY"), dir: filepath.Join(t.TempDir(), "state"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: soakClients}, Timeout: time.Minute},
		ids:    map[string]bool{}, acked: map[string]ack{}, lines: map[string]int{}, counts: map[string]int{},
	}
	if s.binary == "" {
		s.binary = build(t)
	}
	needGvisor(t, s.binary)
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 && disk > 0 {
		if err := syscall.Mount("soak", s.dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=700", disk)); err == nil {
			t.Cleanup(func() {
				if err := syscall.Unmount(s.dir, syscall.MNT_DETACH); err != nil {
					t.Error(err)
				}
			})
		}
	}
	port, err := freePort() // for one server after the other
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://127.0.0.1:" + port
	s.config = filepath.Join(t.TempDir(), "config.yaml")
	config := "driver: gvisor\nstate_dir: " + s.dir + "\n" + settings +
		"server: {listen: '" + strings.TrimPrefix(s.url, "http://") + "'}\n"
	if err := os.WriteFile(s.config, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		create := exec.CommandContext(t.Context(), s.binary, "token", "create", name, "--config", s.config)
		out, err := create.Output()
		if err != nil {
			t.Fatalf("token create: %v\n%s", err, out)
		}
		s.tokens[name] = strings.TrimSpace(string(out))
	}
	s.start()
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			text := s.log.Bytes()
			t.Logf("the servers said:\n%s", text[max(0, len(text)-20_000):])
		}
	})
	return s
}

// start starts the server, and returns when it answers.
func (s *soak) start() {
	s.t.Helper()
	const enter = `for group in "${@:4}"; do echo $$ > "$group/cgroup.procs" || exit; done; exec "$1" serve --config "$2"`
	s.server = exec.Command(s.binary, "serve", "--config", s.config)
	if len(s.groups) > 0 {
		s.server = exec.Command("bash", append([]string{"-c", enter, "bash", s.binary, s.config, "--"}, s.groups...)...)
	}
	s.server.Stderr = &s.log
	if err := s.server.Start(); err != nil {
		s.t.Fatal(err)
	}
	for range 1200 {
		req, err := http.NewRequest(http.MethodGet, s.url+"/healthz", nil)
		if err != nil {
			s.t.Fatal(err)
		}
		if res, err := s.client.Do(req); err == nil {
			res.Body.Close()
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.t.Fatal("the server does not answer")
}

// kill kills the server with SIGKILL.
func (s *soak) kill() {
	s.server.Process.Kill()
	s.server.Wait()
}

// A soakRun is what a tool that runs something gives.
type soakRun struct {
	RunID     string `json:"run_id"`
	SandboxID string `json:"sandbox_id"`
	Status    string `json:"status"`
	Verdict   struct {
		Code  string `json:"code"`
		Cause string `json:"cause"`
	} `json:"verdict"`
	Stdout   string `json:"stdout"`
	Rollback *struct {
		Done  bool   `json:"done"`
		Cause string `json:"cause"`
	} `json:"rollback"`
	Message string `json:"message"` // of a call that was refused
	// The tool snapshot gives these.
	Snapshots []struct {
		ID string `json:"snapshot_id"`
	} `json:"snapshots"`
	Sandboxes []string `json:"sandboxes"`
}

// client is the name of a client, its principal and its workspace.
func client(n int) string { return fmt.Sprintf("soak-%d", n) }

// toolAs calls a tool for a principal. The error is of a server that did not
// answer, or that said it could not.
func (s *soak) toolAs(ctx context.Context, who, name string, arguments map[string]any) (r soakRun, err error) {
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{
		"name": name, "arguments": arguments, "_meta": map[string]any{
			"io.modelcontextprotocol/protocolVersion":    "2026-07-28",
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		},
	}})
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/mcp", bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	for k, v := range map[string]string{
		"Content-Type": "application/json", "Accept": "application/json, text/event-stream", "Authorization": "Bearer " + s.tokens[who],
		"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": name,
	} {
		req.Header.Set(k, v)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return r, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return r, err
	}
	if i := bytes.LastIndex(text, []byte("data: ")); i >= 0 {
		text = text[i+len("data: "):] // the answer is the last message
	}
	var answer struct {
		Result struct {
			Content    []struct{ Text string }
			Structured *soakRun `json:"structuredContent"`
		}
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return r, fmt.Errorf("%w in %.300s", err, text)
	}
	if answer.Result.Structured == nil {
		return r, fmt.Errorf("refused: %.300s", text)
	}
	return *answer.Result.Structured, nil
}

// work is one client.
func (s *soak) work(ctx context.Context, n int) {
	random := rand.New(rand.NewPCG(uint64(n), 1))
	workspace := client(n)
	for i := 0; ctx.Err() == nil; i++ {
		nonce := fmt.Sprintf("n%d-%d", n, i)
		args := map[string]any{"timeout_seconds": 20}
		kind := []string{"print", "print", "line", "later", "memory", "disk"}[random.IntN(6)]
		want := nonce
		switch kind {
		case "print":
			args["code"] = "print('" + nonce + "')"
		case "line":
			args["language"], args["workspace"], args["stateless"] = "sh", workspace, true
			args["code"] = "echo " + nonce + " >> /data/lines && echo " + nonce
		case "later":
			args["language"], args["stateless"], args["wait_seconds"] = "sh", true, 0
			args["code"] = "sleep 2; echo " + nonce
		case "memory":
			args["language"], args["stateless"], want = "sh", true, ""
			args["code"] = "x=aaaaaaaa; while :; do x=$x$x; done"
		case "disk":
			args["language"], args["stateless"], want = "sh", true, ""
			args["code"] = "head -c 40000000 /dev/zero > /tmp/full"
		}
		r, err := s.toolAs(ctx, client(n), "run_code", args)
		if err == nil && kind == "later" && r.Status == "running" {
			r, err = s.finish(ctx, client(n), r)
		}
		s.note(kind, r, err, want, workspace)
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the server may be dead
		}
	}
}

// finish waits for a run that goes on, also if the server dies meanwhile.
func (s *soak) finish(ctx context.Context, who string, r soakRun) (soakRun, error) {
	for {
		next, err := s.toolAs(ctx, who, "get_run", map[string]any{"run_id": r.RunID, "wait_seconds": 20})
		if err == nil && next.Status == "finished" || ctx.Err() != nil {
			return next, errors.Join(err, ctx.Err())
		}
		if err != nil && strings.HasPrefix(err.Error(), "refused") && strings.Contains(err.Error(), "there is no run") {
			return next, fmt.Errorf("run %s was started, and is not known: %w", r.RunID, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// note keeps what was acknowledged, and judges it.
func (s *soak) note(kind string, r soakRun, err error, want, workspace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.SandboxID != "" {
		s.ids[r.SandboxID] = true
	}
	if err != nil {
		s.counts["no answer"]++
		s.errors = append(s.errors, err.Error())
		for _, text := range []string{"may have no more", "as much as it can", "in use", "too many"} {
			if strings.Contains(err.Error(), text) {
				s.t.Errorf("%s of %s was locked out: %v", kind, workspace, err)
			}
		}
		if strings.Contains(err.Error(), "is not known") {
			s.t.Errorf("%s: %v", kind, err)
		}
		return
	}
	code := sandbox.VerdictCode(r.Verdict.Code)
	s.counts[string(code)]++
	switch {
	case strings.Contains(r.Verdict.Cause, "fair share"):
		s.t.Errorf("%s of %s had to make room: %+v", kind, workspace, r)
	case code == sandbox.SandboxLost && s.boxKills.Load() > 0:
		// Then nobody was told that it went well.
	case code == sandbox.OutOfMemory || code == sandbox.DiskFull || code == sandbox.Timeout:
	case code == sandbox.Failed:
	case code == sandbox.OK && want != "" && strings.TrimSpace(r.Stdout) == want:
		s.acked[r.RunID] = ack{workspace, want}
		if kind == "line" {
			s.lines[workspace+" "+want]++
		}
	case code == sandbox.OK && want == "":
		s.t.Errorf("%s ended well: %+v", kind, r)
	case code != sandbox.OK && s.boxKills.Load() > 0:
	default:
		s.t.Errorf("%s: %+v, want %q", kind, r, want)
	}
}

// harm does harm until it is over: one thing after the other.
func (s *soak) harm(ctx context.Context, over func() bool) {
	filler := filepath.Join(s.dir, "filler")
	faults := []func(){
		s.killBox,
		func() { s.kill(); s.start() },
		s.killBox,
		func() { s.fill(ctx, filler) },
	}
	for i := 0; ; i++ {
		for wait := time.Now().Add(3 * time.Second); time.Now().Before(wait); time.Sleep(100 * time.Millisecond) {
			if over() {
				return
			}
		}
		faults[i%len(faults)]()
		s.faults.Add(1)
	}
}

// fill has the server's disk full for a while, if it is one of its own.
func (s *soak) fill(ctx context.Context, filler string) {
	if os.Geteuid() != 0 {
		return
	}
	f, err := os.Create(filler)
	if err != nil {
		return
	}
	defer os.Remove(filler)
	defer f.Close()
	piece := make([]byte, 1<<20)
	for range 2 * soakDisk / len(piece) {
		if _, err := f.Write(piece); errors.Is(err, syscall.ENOSPC) {
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
			return
		}
	}
}

// killBox kills the kernel of some sandbox with SIGKILL.
func (s *soak) killBox() {
	pids := s.processes("runsc-sandbox")
	if len(pids) == 0 {
		return
	}
	if syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
		s.boxKills.Add(1)
	}
}

// processes returns those that have the state directory, and the word, on their
// command line.
func (s *soak) processes(word string) (pids []int) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		s.t.Error(err)
	}
	for _, dir := range dirs {
		line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if err == nil && pid != os.Getpid() && bytes.Contains(line, []byte(s.dir)) && bytes.Contains(line, []byte(word)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// check asks for what was acknowledged, of a server that has just begun.
func (s *soak) check() {
	t := s.t
	s.kill()
	s.start()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	checked := 0
	for id, a := range s.acked {
		if checked++; checked > soakChecked {
			break
		}
		r, err := s.toolAs(ctx, a.who, "get_run", map[string]any{"run_id": id})
		if err != nil || r.Verdict.Code != string(sandbox.OK) || strings.TrimSpace(r.Stdout) != a.printed {
			t.Errorf("run %s: %+v, %v; want ok with %q, as it was acknowledged", id, r, err, a.printed)
		}
	}
	for n := range soakClients {
		workspace := client(n)
		r, err := s.toolAs(ctx, client(n), "run_code", map[string]any{"language": "sh", "stateless": true, "workspace": workspace, "code": "cat /data/lines || :"})
		if err != nil || r.Verdict.Code != string(sandbox.OK) {
			t.Errorf("read workspace %s: %+v, %v", workspace, r, err)
			continue
		}
		s.ids[r.SandboxID] = true
		there := strings.Fields(r.Stdout)
		for line := range s.lines {
			if name, nonce, _ := strings.Cut(line, " "); name == workspace && !slices.Contains(there, nonce) {
				t.Errorf("workspace %s lacks %s, which was acknowledged", workspace, nonce)
			}
		}
	}
	if status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.server.Process.Pid)); err == nil {
		for line := range strings.Lines(string(status)) {
			f := strings.Fields(line)
			if len(f) == 3 && f[0] == "VmRSS:" {
				if kb, err := strconv.Atoi(f[1]); err != nil || kb<<10 > soakMemory {
					t.Errorf("the server has %s kB of memory", f[1])
				}
			}
		}
	}
}

// end stops everything, and looks for what is left.
func (s *soak) end() {
	t := s.t
	stop := exec.CommandContext(t.Context(), s.binary, "stop", "--all", "--config", s.config)
	if out, err := stop.CombinedOutput(); err != nil {
		t.Errorf("stop: %v\n%s", err, out)
	}
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := s.server.Wait(); err != nil {
		t.Errorf("glovebox serve: %v", err)
	}
	var left []string
	for range 100 {
		if left = s.left(); len(left) == 0 {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	t.Errorf("left: %s", strings.Join(left, "\n"))
}

// left returns processes, mounts, control groups and directories of sandboxes.
func (s *soak) left() (left []string) {
	for _, pid := range s.processes("") {
		line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		left = append(left, fmt.Sprintf("process %d %.200q", pid, line))
	}
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err == nil {
		for line := range strings.Lines(string(mounts)) {
			if strings.Contains(line, s.dir+"/") {
				left = append(left, "mount "+line)
			}
		}
	}
	if boxes, err := os.ReadDir(filepath.Join(s.dir, "gvisor", "boxes")); err == nil {
		for _, b := range boxes {
			left = append(left, "directory of "+b.Name())
		}
	}
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && s.ids[d.Name()] {
			left = append(left, "control group "+path)
		}
		return nil
	})
	return left
}
