// Package fairtest measures whether a server shares a resource fairly, in fake time.
// Tests of servers that use package fair import it.
package fairtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Service is how long each use of the resource should take.
const Service = 100 * time.Millisecond

// Hostile is the principal that uses the resource as much as it can.
const Hostile sandbox.Principal = "hostile"

// most is the factor by which the others' worst latency may grow.
const most = 5

// p99 is the latency that one in a hundred exceeds.
func p99(took []time.Duration) time.Duration {
	slices.Sort(took)
	return took[len(took)*99/100]
}

// Run has one hostile principal among 2 and 20. use uses the resource of server once,
// for about [Service]. The others use it one at a time, and Hostile as often as it
// can at the same time. start makes a server, which ends with the test.
func Run[S any](t *testing.T, start func(t *testing.T) S, use func(ctx context.Context, server S, who sandbox.Principal) error) {
	t.Helper()
	for _, principals := range []int{2, 20} {
		t.Run(fmt.Sprint(principals), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := start(t)
				once := func(ctx context.Context, who sandbox.Principal) error { return use(ctx, server, who) }
				idle, attacked := measure(t, principals, 0, once), measure(t, principals, 200, once)
				t.Logf("p99 %v idle, %v attacked", idle, attacked)
				if attacked > most*idle {
					t.Errorf("the others' p99 is %v, and %v while one is hostile", idle, attacked)
				}
			})
		})
	}
}

// measure returns the others' p99 while Hostile uses the resource that many times at
// one time.
func measure(t *testing.T, principals, attackers int, use func(ctx context.Context, who sandbox.Principal) error) time.Duration {
	ctx, cancel := context.WithCancel(t.Context())
	var attack, others sync.WaitGroup
	for range attackers {
		attack.Go(func() {
			for ctx.Err() == nil {
				if use(ctx, Hostile) != nil {
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	synctest.Wait()
	var mu sync.Mutex
	var took []time.Duration
	for i := range principals - 1 {
		others.Go(func() {
			time.Sleep(time.Duration(i) * time.Millisecond)
			for range 50 {
				began := time.Now()
				if err := use(ctx, sandbox.Principal(fmt.Sprint("other", i))); err != nil {
					t.Errorf("other %d: %v", i, err)
				}
				mu.Lock()
				took = append(took, time.Since(began))
				mu.Unlock()
				time.Sleep(Service / 7)
			}
		})
	}
	others.Wait()
	cancel()
	attack.Wait()
	return p99(took)
}
