package lost

import (
	"context"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of Keys.
const (
	keepKey   = time.Hour // after the last use
	mostKeys  = 256       // of a principal
	mostOfAll = 4096
)

// Keys finds the runs of repeated calls, by the key that the caller gave with them.
// The zero value is empty. It is safe for concurrent use.
type Keys struct {
	// Past returns the run that the same call started, as a record that outlives this
	// process has it. Its error is of kind NotFound if there is none, and Conflict if
	// another call had the key. Keys then remembers only the calls that are starting,
	// and the function start records the run. Nil: Keys remembers all calls itself.
	Past func(ctx context.Context, p sandbox.Principal, key, call string) (runID string, err error)

	mu   sync.Mutex
	byID map[sandbox.Principal]map[string]*entry
	all  int
}

// An entry is a call with a key.
type entry struct {
	call    string        // what was called
	used    time.Time     // last
	started chan struct{} // closed when the next two fields are set
	runID   string
	err     error
}

// Do starts a run, or finds the run that the same call of the principal with the
// same key started within the last hour. call describes the call. Of concurrent calls,
// one starts the run and the others wait. A start that fails leaves the key free. A
// key that was used for another call gives an error of kind Conflict.
func (k *Keys) Do(ctx context.Context, p sandbox.Principal, key, call string, start func() (runID string, err error)) (runID string, again bool, err error) {
	for {
		e, mine := k.take(p, key, call)
		switch {
		case e.call != call:
			return "", false, sandbox.WithHint(
				sandbox.Errorf(sandbox.Conflict, "idempotency_key: a call with other arguments had this key"),
				"use a new key for a new call")
		case mine:
			// A start that panics must free the key, too.
			e.err = context.Canceled
			defer func() {
				if e.err != nil || k.Past != nil {
					k.drop(p, key, e)
				}
				close(e.started)
			}()
			e.runID, again, e.err = k.begin(ctx, p, key, call, start)
			return e.runID, again, e.err
		}
		select {
		case <-e.started:
		case <-ctx.Done():
			return "", false, ctx.Err()
		}
		if e.err == nil {
			return e.runID, true, nil
		}
	}
}

// begin starts a run, or returns the run of an earlier call.
func (k *Keys) begin(ctx context.Context, p sandbox.Principal, key, call string, start func() (string, error)) (runID string, again bool, err error) {
	if k.Past == nil {
		runID, err = start()
		return runID, false, err
	}
	if runID, err = k.Past(ctx, p, key, call); sandbox.KindOf(err) != sandbox.NotFound {
		return runID, true, err
	}
	runID, err = start()
	if sandbox.KindOf(err) == sandbox.Conflict {
		// Another server on the same records may have started it meanwhile.
		if past, pastErr := k.Past(ctx, p, key, call); sandbox.KindOf(pastErr) != sandbox.NotFound {
			return past, true, pastErr
		}
	}
	return runID, false, err
}

// take returns the entry of a key, and whether the caller must start its run.
func (k *Keys) take(p sandbox.Principal, key, call string) (_ *entry, mine bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	k.expireLocked(p, now)
	if e := k.byID[p][key]; e != nil {
		e.used = now
		return e, false
	}
	for len(k.byID[p]) >= mostKeys {
		k.dropOldestLocked(p)
	}
	if k.all >= mostOfAll {
		for other := range k.byID {
			k.expireLocked(other, now)
		}
	}
	for k.all >= mostOfAll {
		k.dropOldestLocked(k.largestLocked())
	}
	if k.byID == nil {
		k.byID = map[sandbox.Principal]map[string]*entry{}
	}
	if k.byID[p] == nil {
		k.byID[p] = map[string]*entry{}
	}
	e := &entry{call: call, used: now, started: make(chan struct{})}
	k.byID[p][key] = e
	k.all++
	return e, true
}

// drop frees a key, unless another call has taken it.
func (k *Keys) drop(p sandbox.Principal, key string, e *entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byID[p][key] == e {
		k.deleteLocked(p, key)
	}
}

func (k *Keys) deleteLocked(p sandbox.Principal, key string) {
	delete(k.byID[p], key)
	k.all--
	if len(k.byID[p]) == 0 {
		delete(k.byID, p)
	}
}

func (k *Keys) expireLocked(p sandbox.Principal, now time.Time) {
	for key, e := range k.byID[p] {
		if now.Sub(e.used) > keepKey {
			k.deleteLocked(p, key)
		}
	}
}

// largestLocked returns the principal with the most keys.
func (k *Keys) largestLocked() (largest sandbox.Principal) {
	for p, keys := range k.byID {
		if len(keys) > len(k.byID[largest]) {
			largest = p
		}
	}
	return largest
}

func (k *Keys) dropOldestLocked(p sandbox.Principal) {
	var oldest string
	var first *entry
	for key, e := range k.byID[p] {
		if first == nil || e.used.Before(first.used) {
			oldest, first = key, e
		}
	}
	k.deleteLocked(p, oldest)
}
