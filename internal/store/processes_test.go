package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// childEnv makes the test binary act as a second process on a store.
const childEnv = "STORE_TEST_CHILD_DIR"

// child registers an owner, adds a sandbox with runs, says so, and waits to be
// killed or for the end of its input.
func child(dir string) error {
	ctx := context.Background()
	s, err := Open(ctx, Options{Dir: dir})
	if err != nil {
		return err
	}
	o, err := s.RegisterOwner(ctx, false)
	if err != nil {
		return err
	}
	sb := testSandbox(o.ID())
	if err := s.InsertSandbox(ctx, sb); err != nil {
		return err
	}
	if err := addRuns(ctx, s, sb.ID, 50); err != nil {
		return err
	}
	fmt.Println(o.ID(), sb.ID)
	bufio.NewReader(os.Stdin).ReadByte()
	if err := o.Release(ctx); err != nil {
		return err
	}
	return s.Close()
}

func TestTwoStoresAtOnce(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	// Opened at once, so that making the file is part of what is tested.
	stores := make([]*Store, 2)
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			s, err := Open(ctx, Options{Dir: dir})
			if err != nil {
				t.Error(err)
				return
			}
			stores[i] = s
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	for _, s := range stores {
		defer s.Close()
	}
	sb := testSandbox("0")
	if err := stores[0].InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	var (
		mu     sync.Mutex
		claims int
	)
	const workers, runs = 4, 25
	for i := range workers * len(stores) {
		s := stores[i%len(stores)]
		wg.Go(func() {
			if err := addRuns(ctx, s, sb.ID, runs); err != nil {
				t.Error(err)
			}
			ok, err := s.ClaimSandbox(ctx, sb.ID, "0", fmt.Sprint(i+1))
			if err != nil {
				t.Error(err)
			}
			if ok {
				mu.Lock()
				claims++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if claims != 1 {
		t.Errorf("%d of %d claims succeeded, want 1", claims, workers*len(stores))
	}
	list, err := stores[1].Runs(ctx, sb.ID)
	if err != nil || len(list) != workers*len(stores)*runs {
		t.Errorf("%d runs, %v; want %d", len(list), err, workers*len(stores)*runs)
	}
}

func TestSecondProcess(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	s := mustOpen(t, dir)
	me, err := s.RegisterOwner(ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	sb := testSandbox(me.ID())
	if err := s.InsertSandbox(ctx, sb); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	if err := addRuns(ctx, s, sb.ID, 50); err != nil { // while the other does the same
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	owner, id, _ := strings.Cut(strings.TrimSpace(line), " ")

	alive := func(id string, want bool) {
		t.Helper()
		if got, err := s.OwnerAlive(id); err != nil || got != want {
			t.Errorf("OwnerAlive(%s) = %v, %v; want %v", id, got, err, want)
		}
	}
	alive(owner, true)
	alive(me.ID(), true)
	alive("nobody", false)
	if r, err := s.Sandbox(ctx, id); err != nil || r.Owner != owner {
		t.Errorf("the other's sandbox: %+v, %v", r, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	alive(owner, false)
	if err := s.ForgetDeadOwners(ctx); err != nil {
		t.Fatal(err)
	}
	alive(owner, false)
	alive(me.ID(), true)
	if _, err := os.Stat(s.lockFile(owner)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("lock file of the dead owner: %v", err)
	}
	if runs, err := s.Runs(ctx, id); err != nil || len(runs) != 50 {
		t.Errorf("%d runs of the other, %v", len(runs), err)
	}
	for range 2 {
		if err := me.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
	alive(me.ID(), false)
	if left, err := os.ReadDir(filepath.Join(dir, ownersDir)); err != nil || len(left) != 0 {
		t.Errorf("left in owners: %v, %v", left, err)
	}
}

func TestStaleLockIsRemoved(t *testing.T) {
	ctx := t.Context()
	s := mustOpen(t, t.TempDir())
	for _, id := range []string{"old", "new"} {
		if err := os.WriteFile(s.lockFile(id), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	long := time.Now().Add(-2 * staleLock)
	if err := os.Chtimes(s.lockFile("old"), long, long); err != nil {
		t.Fatal(err)
	}
	if err := s.ForgetDeadOwners(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(s.lockFile("old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("old: %v", err)
	}
	if _, err := os.Stat(s.lockFile("new")); err != nil {
		t.Errorf("new: %v", err)
	}
}
