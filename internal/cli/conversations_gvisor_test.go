//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestGvisorConversations measures a server with many hibernated Python conversations, as
// many as GLOVEBOX_CONVERSATIONS says: their disk space when they are compressed, the
// memory and the start of the server, the cost of its sweeps, and wakes. Each conversation
// has a variable of its own, and must have kept it at a wake. 10,000 take an
// hour and 30 GB. GLOVEBOX_CONVERSATIONS_POOL is the size of the pool, by default 0: it
// gives out interpreters that have imported pandas, and callers leave it time for that.
// No figure decides whether the test passes.
func TestGvisorConversations(t *testing.T) {
	count, _ := strconv.Atoi(os.Getenv("GLOVEBOX_CONVERSATIONS"))
	if count == 0 {
		t.Skip("GLOVEBOX_CONVERSATIONS is not set")
	}
	// Without a pool, no interpreter has imported packages before it is used.
	pool := cmp.Or(os.Getenv("GLOVEBOX_CONVERSATIONS_POOL"), "0")
	s := startSoak(t, 0, "sandbox: {hibernate: disk, hibernate_space: 100GiB, default: {idle: 24h, lifetime: 48h}}\n"+
		"saved: {compress_after: 1m}\npool: {size: "+pool+"}\n", "alice")
	c := &conversations{soak: s, ids: make([]string, count)}
	began := time.Now()
	var next atomic.Int64
	var callers sync.WaitGroup
	for range 2 {
		callers.Go(func() {
			for i := int(next.Add(1)) - 1; i < count && !t.Failed(); i = int(next.Add(1)) - 1 {
				if pool != "0" {
					time.Sleep(poolTime)
				}
				c.begin(i)
				if (i+1)%100 == 0 {
					c.awaitRoom(int64(i))
				}
				if (i+1)%500 == 0 {
					t.Logf("%d conversations after %v, server %d MiB", i+1, time.Since(began).Round(time.Second), c.memory()>>20)
				}
			}
		})
	}
	callers.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d conversations were begun and hibernated in %v", count, time.Since(began).Round(time.Second))
	t.Logf("server: %d MiB of memory", c.memory()>>20)
	c.awaitPacked()
	disk := c.disk()
	t.Logf("disk: %.1f GB, %.2f MB each", float64(disk)/1e9, float64(disk)/1e6/float64(count))

	for _, name := range []string{"compressed", "as written"} {
		var wakes []time.Duration
		for _, i := range rand.Perm(count)[:min(100, count)] {
			wakes = append(wakes, c.wake(i))
			if name == "as written" { // it was compressed the first time
				c.pause(i)
				wakes[len(wakes)-1] = c.wake(i)
			}
			c.pause(i)
		}
		slices.Sort(wakes)
		t.Logf("request to answer, wakes of states %s: p50 %v, p95 %v", name, wakes[len(wakes)/2], wakes[len(wakes)*95/100])
	}

	s.kill()
	began = time.Now()
	s.start()
	t.Logf("a new server answers after %v", time.Since(began))
	time.Sleep(time.Minute) // its first sweeps
	before := c.cpu()
	time.Sleep(2 * time.Minute)
	t.Logf("the server at rest: %d MiB of memory, %v of CPU time a minute", c.memory()>>20, (c.cpu()-before)/2)
	began = time.Now()
	if took := c.wake(count / 2); !t.Failed() {
		t.Logf("a wake then took %v", took)
	}
	s.kill()
}

// poolTime is how long a caller leaves the pool to make a sandbox.
const poolTime = 2 * time.Second

type conversations struct {
	*soak
	ids []string
}

// begin begins conversation i, which sets a variable to i, and hibernates.
func (c *conversations) begin(i int) {
	r, err := c.toolAs(context.Background(), "alice", "run_code", map[string]any{"code": fmt.Sprintf("import json\nn = %d", i)})
	if err != nil || r.Verdict.Code != "ok" {
		c.t.Errorf("conversation %d: %+v, %v", i, r, err)
		return
	}
	c.soak.mu.Lock()
	c.ids[i] = r.SandboxID
	c.soak.mu.Unlock()
	c.pause(i)
}

func (c *conversations) pause(i int) {
	req, err := http.NewRequest(http.MethodPost, c.url+"/e2b/sandboxes/"+c.ids[i]+"/pause", bytes.NewReader(nil))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("X-API-Key", c.tokens["alice"])
	res, err := c.client.Do(req)
	if err != nil {
		c.t.Errorf("pause %d: %v", i, err)
		return
	}
	res.Body.Close()
	if res.StatusCode != http.StatusNoContent {
		c.t.Errorf("pause %d: %s", i, res.Status)
	}
}

// wake has conversation i print its variable, and returns the time from request to answer.
func (c *conversations) wake(i int) time.Duration {
	began := time.Now()
	r, err := c.toolAs(context.Background(), "alice", "run_code", map[string]any{"sandbox_id": c.ids[i], "code": "print(n)"})
	took := time.Since(began)
	if err != nil || strings.TrimSpace(r.Stdout) != strconv.Itoa(i) {
		c.t.Errorf("conversation %d: %+v, %v", i, r, err)
	}
	return took
}

// awaitRoom waits while the states that are not yet compressed fill the disk: a server
// compresses them at the lowest priority.
func (c *conversations) awaitRoom(begun int64) {
	for c.disk() > 8<<30+begun*2<<20 {
		time.Sleep(10 * time.Second)
	}
}

// awaitPacked waits until the disk space does not fall any more.
func (c *conversations) awaitPacked() {
	for last := c.disk(); ; {
		time.Sleep(150 * time.Second) // a state waits a minute, and the next round one more
		now := c.disk()
		if now >= last {
			return
		}
		last = now
	}
}

// disk returns the bytes of the state directory on the disk. A file with several names
// counts once.
func (c *conversations) disk() (sum int64) {
	seen := map[uint64]bool{}
	_ = filepath.WalkDir(c.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil // it is gone
		}
		if info, err := d.Info(); err == nil {
			st := info.Sys().(*syscall.Stat_t)
			if !seen[st.Ino] {
				sum += st.Blocks * 512
			}
			if st.Nlink > 1 && !d.IsDir() {
				seen[st.Ino] = true
			}
		}
		return nil
	})
	return sum
}

// processes returns the server and its children, such as the supervisor.
func (c *conversations) processes() []string {
	pid := strconv.Itoa(c.server.Process.Pid)
	all := []string{pid}
	threads, _ := filepath.Glob("/proc/" + pid + "/task/*/children")
	for _, name := range threads {
		children, _ := os.ReadFile(name)
		all = append(all, strings.Fields(string(children))...)
	}
	return all
}

// memory returns the memory of the server's processes. What they share counts once.
func (c *conversations) memory() (sum int64) {
	for _, pid := range c.processes() {
		text, _ := os.ReadFile("/proc/" + pid + "/smaps_rollup")
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); fields[0] == "Pss:" {
				kib, _ := strconv.ParseInt(fields[1], 10, 64)
				sum += kib << 10
			}
		}
	}
	return sum
}

// cpu returns the CPU time of the server's processes.
func (c *conversations) cpu() (sum time.Duration) {
	for _, pid := range c.processes() {
		text, _ := os.ReadFile("/proc/" + pid + "/stat")
		_, after, _ := bytes.Cut(text, []byte(") "))
		if fields := strings.Fields(string(after)); len(fields) > 12 {
			for _, f := range fields[11:13] { // utime and stime, in ticks
				n, _ := strconv.ParseInt(f, 10, 64)
				sum += time.Duration(n) * 10 * time.Millisecond
			}
		}
	}
	return sum
}
