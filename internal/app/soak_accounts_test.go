package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// Sizes of the soak of accounts.
const (
	spenders      = 10 // principals
	spenderGroups = 3
	ownSandboxes  = 1 // the limit of a principal
	teamSandboxes = 2 // the limit of a group

	roundsOfOne    = 12
	roundsOfWhole  = 120 // without -short
	roundsOfServer = 20  // of all clients, until the server is killed
)

// A spender is a client with one token, and what its acknowledged results add up to.
type spender struct {
	caller
	counted usage.Amounts
	longest time.Duration // for which the sandboxes existed at most
	refused int
}

// A spent answer is what the soak reads of results of all tools.
type spent struct {
	SandboxID string `json:"sandbox_id"`
	Status    string
	Verdict   *struct{ Code string }
	Duration  int64 `json:"duration_ms"`
	Usage     struct {
		CPU int64 `json:"cpu_ms"`
	}
	Sandboxes []struct {
		ID    string `json:"sandbox_id"`
		Name  string
		State string
	}
}

// errRefused is the error of an answer that says no.
var errRefused = errors.New("refused")

func (s *spender) ask(tool string, arguments map[string]any) (spent, error) {
	var m struct {
		Result struct {
			IsError    bool
			Structured json.RawMessage `json:"structuredContent"`
		}
	}
	var r spent
	answer, err := s.try("tools/call", map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(answer), &m); err != nil {
		return r, fmt.Errorf("%w in %q", err, answer)
	}
	if len(m.Result.Structured) > 0 {
		if err := json.Unmarshal(m.Result.Structured, &r); err != nil {
			return r, err
		}
	}
	// A run with another verdict than ok is an error for a model, and a result here.
	if m.Result.IsError && r.Verdict == nil || len(m.Result.Structured) == 0 {
		return r, fmt.Errorf("%w: %s", errRefused, answer)
	}
	return r, nil
}

// insist repeats a call until the server answers.
func (s *spender) insist(tool string, arguments map[string]any) (r spent, err error) {
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if r, err = s.ask(tool, arguments); err == nil || errors.Is(err, errRefused) && !strings.Contains(err.Error(), "unavailable") {
			return r, err
		}
	}
	return r, err
}

// create makes a sandbox of that name, which nothing else has. If the answer is lost, the
// list says whether there is one.
func (s *spender) create(name string) (id string, err error) {
	r, err := s.ask("create_sandbox", map[string]any{"name": name, "lifetime_seconds": 3600, "idle_seconds": 3600})
	if err == nil || errors.Is(err, errRefused) {
		return r.SandboxID, err
	}
	for {
		list, err := s.insist("list_sandboxes", map[string]any{})
		if err != nil {
			return "", err
		}
		state := ""
		for _, b := range list.Sandboxes {
			if b.Name == name {
				id, state = b.ID, b.State
			}
		}
		switch state {
		case "starting": // by a killed process, or until the next sweep
			time.Sleep(20 * time.Millisecond)
		case "running":
			return id, nil
		default:
			return "", nil
		}
	}
}

// TestSoakAccounts has ten principals of three groups spend up to their limits, while the
// server is killed again and again. A client repeats a request without an answer. A run
// has an idempotency key, so a repeated run is the same one. In the end, the usage in the
// store equals the sums of the clients, and no group ever had more sandboxes than its
// limit.
func TestSoakAccounts(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the fake driver needs Linux")
	}
	server := startSoak(t, t.TempDir(), freeAddress(t))
	defer func() { server.kill() }()
	list := newSpenders(t, server)
	watched, err := OpenAccounts(t.Context(), server.config)
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Close()
	rounds := roundsOfWhole
	if testing.Short() {
		rounds = roundsOfOne
	}
	var wg sync.WaitGroup
	next := make(chan struct{}) // a client begins a round
	for n, s := range list {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 2))
			for i := range rounds {
				next <- struct{}{}
				asked := time.Now()
				id, err := s.create(fmt.Sprintf("s%d-%d", n, i))
				if err != nil && strings.Contains(err.Error(), "limit sandboxes is") {
					s.refused++
					time.Sleep(20 * time.Millisecond)
					continue
				}
				if err != nil {
					t.Errorf("create: %v", err)
					return
				}
				if id == "" {
					continue // it did not start
				}
				s.counted.Sandboxes++
				second, err := s.create(fmt.Sprintf("second%d-%d", n, i))
				if err == nil && second != "" || err != nil && !strings.Contains(err.Error(), "limit sandboxes is") {
					t.Errorf("a second sandbox beyond the limit: %q, %v", second, err)
					return
				}
				for j := range 1 + random.IntN(4) {
					r, err := s.insist("run_command", map[string]any{
						"sandbox_id": id, "command": "echo x", "idempotency_key": fmt.Sprintf("k%d-%d-%d", n, i, j), "wait_seconds": 60,
					})
					if err != nil && strings.Contains(err.Error(), "has stopped: the sandbox ") {
						break // it ended with the server
					}
					if err != nil || r.Verdict == nil {
						t.Errorf("run: %+v, %v", r, err)
						return
					}
					s.counted.Runs++
					s.counted.RunMillis += r.Duration
					s.counted.CPUMillis += r.Usage.CPU
				}
				if _, err := s.insist("stop_sandbox", map[string]any{"sandbox_id": id}); err != nil {
					t.Errorf("stop: %v", err)
					return
				}
				s.longest += time.Since(asked)
			}
		})
	}
	go func() { wg.Wait(); close(next) }()
	kills, begun := 0, 0
	for range next {
		checkLive(t, watched)
		if begun++; begun%roundsOfServer == 0 {
			server.kill()
			server.start(t)
			kills++
		}
	}
	for _, s := range list { // only after a failure, there are any
		left, err := s.insist("list_sandboxes", map[string]any{})
		for _, b := range left.Sandboxes {
			if b.State == "running" {
				_, stopErr := s.insist("stop_sandbox", map[string]any{"sandbox_id": b.ID})
				err = errors.Join(err, stopErr)
				t.Errorf("%s is left", b.Name)
			}
		}
		if err != nil {
			t.Error(err)
		}
	}
	server.kill()
	checkSpent(t, server, list)
	var sum usage.Amounts
	refused := 0
	for _, s := range list {
		sum, refused = sum.Plus(s.counted), refused+s.refused
	}
	t.Logf("%d sandboxes, %d runs, %d refused, %d kills", sum.Sandboxes, sum.Runs, refused, kills)
	if sum.Sandboxes < 10 || sum.Runs < 20 || refused == 0 || kills < 3 {
		t.Error("too little happened to have been a test")
	}
}

// newSpenders makes the tokens, groups and limits.
func newSpenders(t *testing.T, server *soaked) []*spender {
	t.Helper()
	tokens, err := OpenTokens(t.Context(), server.config)
	if err != nil {
		t.Fatal(err)
	}
	defer tokens.Close()
	limits := []AccountLimit{{Principal: AnyPrincipal, Limit: usage.LimitSandboxes, Value: ownSandboxes}}
	for g := range spenderGroups {
		limits = append(limits, AccountLimit{Group: fmt.Sprint("team", g), Limit: usage.LimitSandboxes, Value: teamSandboxes})
	}
	if err := tokens.store.SetLimits(t.Context(), limits); err != nil {
		t.Fatal(err)
	}
	var list []*spender
	for n := range spenders {
		token, info, err := tokens.Create(t.Context(), fmt.Sprint("spender", n), []string{"run"})
		if err != nil {
			t.Fatal(err)
		}
		if err := tokens.store.AddMembers(t.Context(), fmt.Sprint("team", n%spenderGroups), []sandbox.Principal{info.Principal}); err != nil {
			t.Fatal(err)
		}
		list = append(list, &spender{caller: caller{t, server.url, token, http.DefaultClient}})
	}
	return list
}

// checkLive checks that no principal and no group has more sandboxes than it may.
func checkLive(t *testing.T, a *Accounts) {
	t.Helper()
	boxes, err := a.store.LiveSandboxes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	own, teams := map[sandbox.Principal]int{}, map[int]int{}
	for _, b := range boxes {
		var n int
		if _, err := fmt.Sscanf(string(b.Principal), "token:spender%d", &n); err != nil {
			t.Fatalf("%s is of %s", b.ID, b.Principal)
		}
		own[b.Principal]++
		teams[n%spenderGroups]++
		if own[b.Principal] > ownSandboxes || teams[n%spenderGroups] > teamSandboxes {
			t.Errorf("there are too many sandboxes: %v, groups %v", own, teams)
		}
	}
}

// checkSpent compares the usage in the store with the sums of the clients.
func checkSpent(t *testing.T, server *soaked, list []*spender) {
	t.Helper()
	accounts, err := OpenAccounts(t.Context(), server.config)
	if err != nil {
		t.Fatal(err)
	}
	defer accounts.Close()
	sums := map[usage.Column]map[sandbox.Principal]usage.Amounts{}
	for _, by := range [][]usage.Column{{usage.ByDay, usage.ByPrincipal}, {usage.ByHour, usage.ByPrincipal}, {usage.BySandbox}} {
		rows, err := accounts.Usage(t.Context(), usage.Query{By: by})
		if err != nil {
			t.Fatal(err)
		}
		of := map[sandbox.Principal]usage.Amounts{}
		for _, r := range rows {
			of[r.Principal] = of[r.Principal].Plus(r.Amounts)
		}
		sums[by[0]] = of
	}
	if diff := cmp.Diff(sums[usage.ByDay], sums[usage.ByHour]); diff != "" {
		t.Errorf("-days +hours\n%s", diff)
	}
	if diff := cmp.Diff(sums[usage.ByDay], sums[usage.BySandbox]); diff != "" {
		t.Errorf("-days +sandboxes\n%s", diff)
	}
	for n, s := range list {
		got := sums[usage.ByDay][sandbox.TokenPrincipal(fmt.Sprint("spender", n))]
		existed := time.Duration(got.SandboxMillis) * time.Millisecond
		if slack := time.Duration(got.Sandboxes) * 2 * time.Millisecond; existed > s.longest+slack {
			t.Errorf("spender %d: sandboxes existed for %v, which is more than %v", n, existed, s.longest)
		}
		want := s.counted
		want.SandboxMillis, want.MemoryKiBSeconds, want.StorageKiBSeconds = got.SandboxMillis, got.MemoryKiBSeconds, got.StorageKiBSeconds
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spender %d: -added up +counted\n%s", n, diff)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(server.config.StateDir, "fake", "sbx_*")); len(left) > 0 {
		t.Errorf("boxes are left: %v", left)
	}
}
