//go:build linux && !nogvisor

package cli

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// soakSeedEnv is the seed of the soak of states; default 1.
	soakSeedEnv = "GLOVEBOX_TEST_SOAK_SEED"
	// statesShort is how long it takes with -short, and statesLong otherwise.
	statesShort = 30 * time.Second
	statesLong  = 2 * time.Minute
	// maxModels and maxTaken bound the sandboxes and the snapshots at one time.
	maxModels = 3
	maxTaken  = 3
	keeper    = "keeper" // the principal
)

// A model is what a sandbox has: a variable of Python, a file in its writable layer, and
// a file in its workspace.
type model struct {
	id                  string
	memory, layer, data int
	// orphan means that a server made the sandbox that was killed. Its state cannot be
	// kept then.
	orphan bool
}

// A takenModel is a model of a snapshot. of is the sandbox's, whose workspace a new
// sandbox copies; nil if that sandbox is gone.
type takenModel struct {
	id            string
	memory, layer int
	of            *model
	data          int // of the workspace of a sandbox that is gone
}

// A stateSoak does one thing after the other with sandboxes, at random, and compares
// what they have with models.
type stateSoak struct {
	*soak
	random *rand.Rand
	models []*model
	taken  []takenModel
	last   int // the value that was written last
	did    map[string]int
	spaces int
}

// TestGvisorSoakOfStates hibernates, wakes, forks, rolls back, and undoes runs, takes
// snapshots, and kills servers and sandboxes. After each step, a variable, a file in the
// writable layer and a file in the workspace have the values of the model. In the end
// nothing is left.
func TestGvisorSoakOfStates(t *testing.T) {
	long, seed := statesLong, uint64(1)
	if testing.Short() {
		long = statesShort
	}
	if text := os.Getenv(soakEnv); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakEnv, err)
		}
	}
	if text := os.Getenv(soakSeedEnv); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", soakSeedEnv, err)
		}
	}
	t.Logf("the seed is %d: %s sets another", seed, soakSeedEnv)
	s := &stateSoak{
		soak: startSoak(t, 0, "pool: {size: 0}\nsandbox: {count: 12, hibernate: disk, default: {memory: 256MiB, disk: 32MiB}}\n"+
			"workspace: {size: 32MiB}\n", keeper),
		random: rand.New(rand.NewPCG(seed, 1)), did: map[string]int{},
	}
	s.client.Timeout = 5 * time.Minute // a slow machine is no fault
	steps := []struct {
		name  string
		often int
		do    func()
	}{
		{"write", 4, func() { s.write(s.any()) }},
		{"hibernate", 3, s.hibernate},
		{"take", 3, s.take},
		{"roll back", 3, s.rollBack},
		{"undo", 3, s.undo},
		{"fork", 2, s.fork},
		{"create", 2, s.createFrom},
		{"restart", 1, s.restart},
		{"kill server", 1, s.killServer},
		{"kill sandbox", 1, s.killSandbox},
	}
	var names []int
	for i, step := range steps {
		for range step.often {
			names = append(names, i)
		}
	}
	// Each is done once, in any case, however slow the machine is.
	var order []int
	for begun := time.Now(); time.Since(begun) < long || len(s.did) < len(steps); {
		if len(order) == 0 {
			order = slices.Clone(names)
			s.random.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		}
		step := steps[order[0]]
		order = order[1:]
		for len(s.models) < 2 {
			s.create()
		}
		step.do()
		s.did[step.name]++
		if t.Failed() {
			t.Fatalf("after %v, in the step %q", s.did, step.name)
		}
	}
	for _, m := range s.models {
		s.check(m)
	}
	for len(s.taken) > 0 {
		s.forget()
	}
	if left, err := filepath.Glob(filepath.Join(s.dir, "gvisor", "snapshots", "*")); err != nil || len(left) > 0 {
		t.Errorf("snapshots are left: %v, %v", left, err)
	}
	s.end()
	t.Logf("did %v", s.did)
}

// ask calls a tool. The error has the reason of a refusal.
func (s *stateSoak) ask(name string, args map[string]any) (soakRun, error) {
	r, err := s.toolAs(s.t.Context(), keeper, name, args)
	if err == nil && r.Message != "" {
		err = errors.New(r.Message)
	}
	return r, err
}

// call calls a tool, which must do what it was asked.
func (s *stateSoak) call(name string, args map[string]any) soakRun {
	s.t.Helper()
	r, err := s.ask(name, args)
	if err != nil {
		s.t.Fatalf("%s %v: %v", name, args, err)
	}
	return r
}

// tries calls a tool that keeps the state of a sandbox, and reports whether it did. For
// an orphan it must say why it did not.
func (s *stateSoak) tries(m *model, name string, args map[string]any) (soakRun, bool) {
	s.t.Helper()
	r, err := s.ask(name, args)
	switch {
	case err == nil:
		return r, true
	case m.orphan && strings.Contains(err.Error(), "an earlier server made the sandbox"):
	default:
		s.t.Errorf("%s %v of an orphan (%t): %v", name, args, m.orphan, err)
	}
	return r, false
}

// python runs code, with an additional argument, or "".
func (s *stateSoak) python(m *model, code, argument string) soakRun {
	s.t.Helper()
	args := map[string]any{"sandbox_id": m.id, "code": code, "timeout_seconds": 100}
	if argument != "" {
		args[argument] = true
	}
	return s.call("run_code", args)
}

// any returns a sandbox.
func (s *stateSoak) any() *model { return s.models[s.random.IntN(len(s.models))] }

// add adds a sandbox, whose model must hold, and makes room for others.
func (s *stateSoak) add(m *model) {
	s.ids[m.id] = true
	s.models = append(s.models, m)
	s.check(m)
	if len(s.models) > maxModels {
		gone := s.any()
		s.call("stop_sandbox", map[string]any{"sandbox_id": gone.id})
		s.drop(gone)
	}
}

// drop forgets a sandbox that is gone.
func (s *stateSoak) drop(gone *model) {
	s.models = slices.DeleteFunc(s.models, func(m *model) bool { return m == gone })
	for i := range s.taken {
		if s.taken[i].of == gone {
			s.taken[i].of, s.taken[i].data = nil, gone.data
		}
	}
}

// check compares a sandbox with its model.
func (s *stateSoak) check(m *model) {
	s.t.Helper()
	r := s.python(m, "print(x, open('/tmp/n').read(), open('/data/n').read())", "")
	if want := fmt.Sprintf("%d %d %d", m.memory, m.layer, m.data); strings.TrimSpace(r.Stdout) != want {
		s.t.Errorf("%s has %q, want memory, layer and workspace %s: %+v", m.id, r.Stdout, want, r)
	}
}

func (s *stateSoak) create() {
	s.spaces++
	r := s.call("create_sandbox", map[string]any{"workspace": fmt.Sprintf("space-%d", s.spaces)})
	m := &model{id: r.SandboxID}
	s.python(m, "x = 0\nfor name in '/tmp/n', '/data/n': open(name, 'w').write('0')", "")
	s.add(m)
}

// change returns code that writes a new value at one place or more, and what has the new
// value.
func (s *stateSoak) change() (code string, value int, memory, layer, data bool) {
	s.last++
	which := 1 + s.random.IntN(7)
	memory, layer, data = which&1 != 0, which&2 != 0, which&4 != 0
	if memory {
		code += fmt.Sprintf("x = %d\n", s.last)
	}
	if layer {
		code += fmt.Sprintf("open('/tmp/n', 'w').write('%d')\n", s.last)
	}
	if data {
		code += fmt.Sprintf("open('/data/n', 'w').write('%d')\n", s.last)
	}
	return code, s.last, memory, layer, data
}

func (s *stateSoak) write(m *model) {
	code, n, memory, layer, data := s.change()
	if r := s.python(m, code, ""); r.Verdict.Code != "ok" {
		s.t.Errorf("write in %s: %+v", m.id, r)
	}
	if memory {
		m.memory = n
	}
	if layer {
		m.layer = n
	}
	if data {
		m.data = n
	}
	s.check(m)
}

func (s *stateSoak) hibernate() {
	m := s.any()
	s.check(m) // so it is awake
	cmd := exec.CommandContext(s.t.Context(), s.binary, "hibernate", m.id, "--config", s.config)
	out, err := cmd.CombinedOutput()
	want := "hibernates on disk"
	if m.orphan {
		want = "hibernates in memory"
	}
	if err != nil || !strings.Contains(string(out), want) {
		s.t.Errorf("hibernate %s, which is an orphan (%t): %v\n%s", m.id, m.orphan, err, out)
	}
	if s.random.IntN(2) == 0 {
		s.check(m) // or it stays so for later steps
	}
}

func (s *stateSoak) take() {
	for len(s.taken) >= maxTaken {
		s.forget()
	}
	m := s.any()
	if r, ok := s.tries(m, "snapshot", map[string]any{"action": "take", "sandbox_id": m.id}); ok {
		s.taken = append(s.taken, takenModel{id: r.Snapshots[0].ID, memory: m.memory, layer: m.layer, of: m})
	}
	s.check(m)
}

// forget deletes the oldest snapshot.
func (s *stateSoak) forget() {
	s.call("snapshot", map[string]any{"action": "delete", "snapshot": s.taken[0].id})
	s.taken = s.taken[1:]
}

func (s *stateSoak) rollBack() {
	if len(s.taken) == 0 {
		s.take()
		if len(s.taken) == 0 {
			return
		}
	}
	from := s.taken[s.random.IntN(len(s.taken))]
	m := from.of
	if m == nil {
		m = s.any() // a snapshot of another sandbox fits, too
	}
	s.write(m)
	if _, ok := s.tries(m, "snapshot", map[string]any{"action": "rollback", "sandbox_id": m.id, "snapshot": from.id}); ok {
		m.memory, m.layer = from.memory, from.layer
	}
	s.check(m)
}

// undo has a run fail, or end well, that is undone if it fails.
func (s *stateSoak) undo() {
	m := s.any()
	code, n, memory, layer, data := s.change()
	fails := s.random.IntN(3) > 0
	if fails {
		code += "1/0"
	}
	r, ok := s.tries(m, "run_code", map[string]any{"sandbox_id": m.id, "code": code, "timeout_seconds": 100, "rollback_on_failure": true})
	if ok {
		if fails != (r.Rollback != nil && r.Rollback.Done) {
			s.t.Errorf("a run that fails (%t) in %s: %+v", fails, m.id, r)
		}
		if data {
			m.data = n
		}
		if memory && !fails {
			m.memory = n
		}
		if layer && !fails {
			m.layer = n
		}
	}
	s.check(m)
}

func (s *stateSoak) fork() {
	m := s.any()
	r, ok := s.tries(m, "snapshot", map[string]any{"action": "fork", "sandbox_id": m.id, "count": 2})
	s.check(m)
	if !ok {
		return
	}
	if len(r.Sandboxes) != 2 {
		s.t.Errorf("a fork in two made %v", r.Sandboxes)
	}
	first := *m
	for _, id := range r.Sandboxes {
		child := first
		child.id, child.orphan = id, false
		s.add(&child)
	}
	for _, id := range r.Sandboxes { // they share nothing
		if i := slices.IndexFunc(s.models, func(m *model) bool { return m.id == id }); i >= 0 {
			s.write(s.models[i])
		}
	}
	if slices.Contains(s.models, m) {
		s.check(m)
	}
}

func (s *stateSoak) createFrom() {
	if len(s.taken) == 0 {
		s.take()
		if len(s.taken) == 0 {
			return
		}
	}
	from := s.taken[s.random.IntN(len(s.taken))]
	data := from.data
	if from.of != nil {
		data = from.of.data
	}
	r := s.call("create_sandbox", map[string]any{"snapshot": from.id})
	s.add(&model{id: r.SandboxID, memory: from.memory, layer: from.layer, data: data})
}

// checkAll uses all sandboxes, so that the present server has them.
func (s *stateSoak) checkAll() {
	for _, m := range s.models {
		s.check(m)
	}
}

// restart has the server end in good order, and another one begin.
func (s *stateSoak) restart() {
	if err := s.server.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	if err := s.server.Wait(); err != nil {
		s.t.Fatalf("glovebox serve: %v", err)
	}
	s.start()
	s.checkAll()
}

// killServer kills the server. Sandboxes that do not hibernate are orphans then.
func (s *stateSoak) killServer() {
	asleep := s.asleep()
	s.kill()
	s.start()
	for _, m := range s.models {
		m.orphan = m.orphan || !asleep[m.id]
	}
	s.checkAll()
}

// asleep returns the sandboxes that have no kernel.
func (s *stateSoak) asleep() map[string]bool {
	asleep := map[string]bool{}
	for _, m := range s.models {
		asleep[m.id] = s.kernel(m) == 0
	}
	return asleep
}

// kernel returns the process that is the kernel of a sandbox, or 0.
func (s *stateSoak) kernel(m *model) int {
	for _, pid := range s.processes("runsc-sandbox") {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(line), m.id) {
			return pid
		}
	}
	return 0
}

// killSandbox kills the kernel of a sandbox, if it has one. That sandbox is gone then, and
// says so. Its snapshots stay.
func (s *stateSoak) killSandbox() {
	m := s.any()
	s.check(m) // so it is awake
	pid := s.kernel(m)
	if pid == 0 {
		s.t.Fatalf("%s has no kernel: %v", m.id, slices.Collect(maps.Keys(s.ids)))
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		s.t.Fatal(err)
	}
	r, err := s.ask("run_code", map[string]any{"sandbox_id": m.id, "code": "print(x)"})
	if err == nil && r.Verdict.Code == "ok" {
		s.t.Errorf("%s goes on after its kernel was killed: %+v", m.id, r)
	}
	s.drop(m)
}
