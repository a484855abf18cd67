package app

import (
	"fmt"
	"net/http"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// TestRequestLimitOfAccount: a limit of requests that an administrator sets holds on a
// running server, and its removal too.
func TestRequestLimitOfAccount(t *testing.T) {
	var token string
	sys, base := serveHTTP(t, func(o *Options) {
		all, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		if token, _, err = all.Create(t.Context(), "ci", nil); err != nil {
			t.Fatal(err)
		}
	})
	waitServing(t, base)
	await := func(want int) (text string) {
		t.Helper()
		var status int
		for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if status, _, text = ask(t, base, token); status == want {
				return text
			}
		}
		t.Fatalf("status %d and %s, want %d", status, text, want)
		return ""
	}
	await(http.StatusOK)
	of := store.AccountLimit{Principal: sandbox.TokenPrincipal("ci"), Limit: usage.LimitRequests}
	if err := sys.store.SetLimits(t.Context(), []store.AccountLimit{of}); err != nil {
		t.Fatal(err)
	}
	if text, want := await(http.StatusTooManyRequests), "your limit requests-per-second is 0"; !strings.Contains(text, want) {
		t.Errorf("%s, want %q", text, want)
	}
	if _, err := sys.store.RemoveLimits(t.Context(), of, nil); err != nil {
		t.Fatal(err)
	}
	await(http.StatusOK)
}

// TestTenThousandAccounts measures the memory and the time of a server with 10,000 tokens,
// each with all limits and in a group of 100. Each asks for its usage and lists the tools.
// It takes a while, so it needs GLOVEBOX_FIGURES.
func TestTenThousandAccounts(t *testing.T) {
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	const accounts, groups = 10_000, 100
	tokens := make([]string, accounts)
	sys, base := serveHTTP(t, func(o *Options) {
		all, err := OpenTokens(t.Context(), o.Config)
		if err != nil {
			t.Fatal(err)
		}
		defer all.Close()
		for i := range tokens {
			tokens[i] = auth.NewToken(sandbox.Shard{})
			name := "t" + strconv.Itoa(i)
			err := all.store.PutToken(t.Context(), sandbox.Token{
				ID: sandbox.NewTokenID(), Name: name, Principal: sandbox.TokenPrincipal(name), Hash: auth.Hash(tokens[i]),
				Scopes: []string{string(auth.ScopeRun), string(auth.ScopeFiles)}, Created: time.Now(),
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	waitServing(t, base)
	memory := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapInuse + m.StackInuse)
	}
	call := func(i int) (time.Duration, error) {
		began := time.Now()
		status, _, text := ask(t, base, tokens[i])
		if status != http.StatusOK {
			return 0, fmt.Errorf("%d %s", status, text)
		}
		return time.Since(began), nil
	}
	round := func(name string) {
		var mu sync.Mutex
		var all []time.Duration
		var wg sync.WaitGroup
		began := time.Now()
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < accounts; i += 8 {
					took, err := call(i)
					mu.Lock()
					if err != nil {
						t.Errorf("account %d: %v", i, err)
					}
					all = append(all, took)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		took := time.Since(began)
		slices.Sort(all)
		t.Logf("%s: %.0f requests a second, %v p50, %v p99", name, accounts/took.Seconds(), all[len(all)/2], all[len(all)*99/100])
	}
	if _, err := call(0); err != nil {
		t.Fatal(err)
	}
	before := memory()
	round("without limits")
	t.Logf("memory: %.1f MiB more", float64(memory()-before)/(1<<20))
	for g := range groups {
		var members []sandbox.Principal
		for i := g; i < accounts; i += groups {
			members = append(members, sandbox.TokenPrincipal("t"+strconv.Itoa(i)))
		}
		name := "g" + strconv.Itoa(g)
		if err := sys.store.AddMembers(t.Context(), name, members); err != nil {
			t.Fatal(err)
		}
		limits := []store.AccountLimit{{Group: name, Limit: usage.LimitRequests, Value: 1e6}}
		for _, p := range members {
			for _, l := range usage.LimitNames() {
				limits = append(limits, store.AccountLimit{Principal: p, Limit: l, Value: 1e9})
			}
		}
		if err := sys.store.SetLimits(t.Context(), limits); err != nil {
			t.Fatal(err)
		}
	}
	round("with limits")
	if more := memory() - before; more > 100<<20 {
		t.Errorf("the accounts take %d MiB, and may take 100", more>>20)
	} else {
		t.Logf("memory: %.1f MiB more than before the first request of the accounts", float64(more)/(1<<20))
	}
	var checks []time.Duration
	for i := range accounts {
		began := time.Now()
		p := sandbox.TokenPrincipal("t" + strconv.Itoa(i))
		list, err := sys.store.Accounts(t.Context(), p)
		if err != nil || len(list) != 2 {
			t.Fatalf("%s: %d accounts, %v", p, len(list), err)
		}
		checks = append(checks, time.Since(began))
	}
	slices.Sort(checks)
	t.Logf("check of all limits: %v p50, %v p99", checks[accounts/2], checks[accounts*99/100])
}
