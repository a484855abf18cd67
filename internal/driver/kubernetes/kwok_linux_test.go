package kubernetes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// kwokEnv names the kubeconfig of test/kwok.sh with the rights of a server. Pods of its
// runtime class run on nodes that execute no programs of them.
const (
	kwokEnv   = "GLOVEBOX_TEST_KWOK"
	kwokClass = "kwok"
)

// A kwokCluster is a real API server with nodes of kwok.
type kwokCluster struct {
	t     *testing.T
	admin *api // with all rights, for what is no part of the driver

	began time.Time
	used  map[string]usage
	self  time.Duration
}

// usage is what a program of the cluster uses.
type usage struct {
	cpu       time.Duration
	rss, peak float64 // in MiB
}

// openKwok returns the cluster, or skips the test.
func openKwok(t *testing.T) *kwokCluster {
	t.Helper()
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	if os.Getenv(kwokEnv) == "" {
		t.Skipf("%s is not set: make bench-kwok", kwokEnv)
	}
	admin, err := connect(&Options{Kubeconfig: os.Getenv("GLOVEBOX_TEST_KUBECONFIG")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.close)
	return &kwokCluster{t: t, admin: admin}
}

// open returns a driver with the rights of a server, and counts its calls.
func (k *kwokCluster) open(dir string, change func(*Options)) (*Driver, *api, *calls) {
	k.t.Helper()
	opts := Options{Kubeconfig: os.Getenv(kwokEnv), StateDir: dir, RuntimeClass: kwokClass, GuestImage: "example.com/glovebox:1", StartTimeout: 10 * time.Minute}
	if change != nil {
		change(&opts)
	}
	d, err := New(opts)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { d.Close() })
	a, err := d.conn.open()
	if err != nil {
		k.t.Fatal(err)
	}
	c := &calls{next: a.http.Transport, made: map[string]int{}}
	a.http.Transport = c
	return d, a, c
}

// calls counts calls of the API server, other than streams to programs.
type calls struct {
	next http.RoundTripper

	mu   sync.Mutex
	made map[string]int
}

func (c *calls) RoundTrip(r *http.Request) (*http.Response, error) {
	what := r.Method
	if q := r.URL.Query(); q.Get("watch") != "" {
		what = "watch"
	} else if q.Get("limit") != "" {
		what = "list"
	}
	resp, err := c.next.RoundTrip(r)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made[what]++
	if err != nil {
		c.made["without an answer"]++
	} else if resp.StatusCode >= 400 {
		c.made[fmt.Sprint("status ", resp.StatusCode)]++
	}
	return resp, err
}

// take returns the numbers since the last call.
func (c *calls) take() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, what := range slices.Sorted(maps.Keys(c.made)) {
		fmt.Fprintf(&b, " %s %d", what, c.made[what])
	}
	c.made = map[string]int{}
	return strings.TrimSpace(b.String())
}

// programs returns what the programs of the cluster use now.
func (k *kwokCluster) programs() map[string]usage {
	all := map[string]usage{}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager", "kwok"} {
		pid := k.pid(name)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			k.t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		number := func(i int) float64 {
			n, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				k.t.Fatal(err)
			}
			return n
		}
		const tick = time.Second / 100
		u := usage{cpu: time.Duration(number(11)+number(12)) * tick, rss: number(21) * float64(os.Getpagesize()) / (1 << 20)}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			k.t.Fatal(err)
		}
		if _, peak, ok := strings.Cut(string(status), "VmHWM:"); ok {
			_, _ = fmt.Sscan(peak, &u.peak)
			u.peak /= 1 << 10
		}
		all[name] = u
	}
	return all
}

// pid finds a program of the cluster, in whose namespace of processes this test is.
func (k *kwokCluster) pid(name string) int {
	k.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		k.t.Fatal(err)
	}
	for _, file := range lines {
		text, err := os.ReadFile(file)
		if first, _, _ := bytes.Cut(text, []byte{0}); err == nil && filepath.Base(string(first)) == name {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			if err != nil {
				k.t.Fatal(err)
			}
			return pid
		}
	}
	k.t.Fatalf("%s does not run", name)
	return 0
}

func ownCPU() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// inUse returns the memory in use, in MiB: objects and stacks.
func inUse() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
}

func (k *kwokCluster) begin() {
	k.began, k.used, k.self = time.Now(), k.programs(), ownCPU()
}

// end logs what happened since begin.
func (k *kwokCluster) end(format string, args ...any) {
	k.t.Helper()
	k.t.Logf("%s; in %v; the driver: %v of CPU time, %.1f MiB in use", fmt.Sprintf(format, args...),
		time.Since(k.began).Round(time.Millisecond), (ownCPU() - k.self).Round(10*time.Millisecond), inUse())
	now := k.programs()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(now)) {
		fmt.Fprintf(&b, "  %s %v, %.0f / %.0f MiB;", name, max(now[name].cpu-k.used[name].cpu, 0).Round(10*time.Millisecond), now[name].rss, now[name].peak)
	}
	k.t.Logf("    CPU time, resident memory and its peak:%s", b.String())
}

// state logs what the cluster keeps of the Pods.
func (k *kwokCluster) state() {
	k.t.Helper()
	db, err := os.Stat(filepath.Join(filepath.Dir(os.Getenv("GLOVEBOX_TEST_KUBECONFIG")), "etcd/member/snap/db"))
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Logf("    etcd's file has %.0f MiB", float64(db.Size())/(1<<20))
}

// testPod returns a Pod of a new sandbox, and the sandbox.
func (d *Driver) testPod() (*corev1.Pod, string, error) {
	spec := testSpec()
	spec.Detached = true
	plan, err := container.NewPlan(d.state, &container.Record{Spec: *spec, Disk: container.DiskMemory, OneUser: true}, abilities, nil)
	if err != nil {
		return nil, "", err
	}
	return podOf(&d.opts, plan, spec.Image, false), spec.ID, nil
}

// start makes n Pods by callers at the same time, and waits until they run.
func (k *kwokCluster) start(d *Driver, a *api, n, callers int) {
	k.t.Helper()
	k.begin()
	var mu sync.Mutex
	var made, took []time.Duration
	var failed atomic.Int64
	k.parallel(n, callers, func(int) error {
		pod, ref, err := d.testPod()
		if err != nil {
			return err
		}
		began := time.Now()
		if _, err := a.create(context.Background(), pod, false); err != nil {
			failed.Add(1)
			return explain(err)
		}
		accepted := time.Since(began)
		if err := d.await(context.Background(), a, ref); err != nil {
			failed.Add(1)
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		made, took = append(made, accepted), append(took, time.Since(began))
		return nil
	})
	all := time.Since(k.began)
	k.end("%d Pods made by %d callers: %.1f a second; accepted in %s, running in %s; %d failed", n, callers, float64(len(took))/all.Seconds(), spread(made), spread(took), failed.Load())
}

// parallel calls f n times, at most atOnce at the same time.
func (k *kwokCluster) parallel(n, atOnce int, f func(i int) error) {
	k.t.Helper()
	places := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	var said atomic.Int64
	for i := range n {
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			if err := f(i); err != nil && said.Add(1) <= 3 {
				k.t.Errorf("%v (kind %s, hint %q)", err, sandbox.KindOf(err), sandbox.HintOf(err))
			}
		})
	}
	wg.Wait()
	if n := said.Load(); n > 3 {
		k.t.Errorf("and %d more errors", n-3)
	}
}

// spread is the median, and the time in which 99 of 100 are.
func spread(d []time.Duration) string {
	if len(d) == 0 {
		return "no time"
	}
	slices.Sort(d)
	return fmt.Sprintf("%v / %v", d[len(d)/2].Round(time.Millisecond), d[len(d)*99/100].Round(time.Millisecond))
}

// label sets a label of a Pod.
func (k *kwokCluster) label(ctx context.Context, name, value string) error {
	return k.admin.rest.Patch(types.MergePatchType).Namespace(k.admin.namespace).Resource("pods").Name(name).
		Body(fmt.Appendf(nil, `{"metadata":{"labels":{"changed":%q}}}`, value)).Do(ctx).Error()
}

// TestKwok measures the driver with 5,000 Pods on a real API server: Pods on nodes of
// kwok, which run no program. No figure decides whether the test passes. It takes
// minutes, so it needs GLOVEBOX_FIGURES.
func TestKwok(t *testing.T) {
	k := openKwok(t)
	most := 5000
	if n, err := strconv.Atoi(os.Getenv("GLOVEBOX_FIGURES")); err == nil && n >= 600 {
		most = n
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("load %s, %d CPUs", strings.TrimSpace(string(load)), runtime.NumCPU())
	dir := t.TempDir()
	d, a, c := k.open(dir, nil)
	id, err := d.state.ID()
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()

	k.begin()
	if refs, err := d.List(ctx); err != nil || len(refs) > 0 {
		t.Fatalf("List: %q, %v", refs, err)
	}
	k.end("without Pods: a list; calls: %s", c.take())
	k.silent(d)
	c.take()

	k.start(d, a, 500, 16)
	t.Logf("    calls: %s", c.take())
	k.start(d, a, most-500, most-500)
	t.Logf("    calls: %s", c.take())

	k.state()
	k.lists(d, c, most)
	other, _, oc := k.open(t.TempDir(), nil)
	k.begin()
	if found, err := other.Leftovers(ctx, false); err != nil || len(found) > 0 {
		t.Errorf("Leftovers: %q, %v", found, err)
	}
	k.end("Leftovers of another state directory with %d Pods; calls: %s", most, oc.take())
	k.begin()
	if found, err := d.Leftovers(ctx, false); err != nil || len(found) > 0 {
		t.Errorf("Leftovers: %q, %v", found, err)
	}
	k.end("Leftovers with %d Pods of our own; calls: %s", most, c.take())

	refs, err := d.List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.take()
	k.begin()
	k.parallel(most, 32, func(i int) error { return k.label(ctx, podName(refs[i]), "unseen") })
	k.end("%d changes for which nobody waits; calls of the driver: %s", most, c.take())
	k.changes(a, id, refs)
	t.Logf("    calls: %s", c.take())
	k.state()

	k.hung(d, refs[0])
	k.streams(a, refs, min(1000, most/3))
	c.take()
	k.killServer(d, a, id, refs[0])
	t.Logf("    calls: %s", c.take())

	// The server died without a word. The next one of its directory finds the Pods.
	if err := d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	d, _, c = k.open(dir, nil)
	refs = k.lists(d, c, most)
	k.discard(d, c, refs[:100], 1)
	k.discard(d, c, refs[100:], 16)
	if refs, err := d.List(ctx); err != nil || len(refs) > 0 {
		t.Errorf("List after all were discarded: %d, %v", len(refs), err)
	}
	k.state()
}

// lists measures a list, as each sweep has one.
func (k *kwokCluster) lists(d *Driver, c *calls, want int) []string {
	k.t.Helper()
	c.take()
	k.begin()
	refs, err := d.List(context.Background())
	if err != nil || len(refs) != want {
		k.t.Fatalf("List: %d, %v", len(refs), err)
	}
	k.end("a list of %d Pods; calls: %s", want, c.take())
	return refs
}

// changes measures callers that all wait for a change of their Pod.
func (k *kwokCluster) changes(a *api, id string, refs []string) {
	k.t.Helper()
	var waiting, ended sync.WaitGroup
	waiting.Add(len(refs))
	for _, ref := range refs {
		var first sync.Once
		ended.Go(func() {
			err := a.watch.until(context.Background(), id, podName(ref), func(pod *corev1.Pod) (bool, error) {
				first.Do(waiting.Done)
				return pod.Labels["changed"] == "yes", nil
			})
			if err != nil {
				k.t.Error(err)
				first.Do(waiting.Done)
			}
		})
	}
	waiting.Wait()
	k.t.Logf("%d callers wait: %.1f MiB in use", len(refs), inUse())
	k.begin()
	k.parallel(len(refs), 32, func(i int) error { return k.label(context.Background(), podName(refs[i]), "yes") })
	made := time.Since(k.began)
	ended.Wait()
	k.end("%d changes, each of which wakes its caller; the API server took %v for them", len(refs), made.Round(time.Millisecond))
}

// silent makes a box whose Pod runs, and whose node cannot execute the guest.
func (k *kwokCluster) silent(d *Driver) {
	k.t.Helper()
	spec := testSpec()
	spec.Detached = true
	k.begin()
	_, err := d.Create(context.Background(), spec)
	k.end("a box whose guest cannot be executed: %v (kind %s, hint %q)", err, sandbox.KindOf(err), sandbox.HintOf(err))
	if err == nil || driver.IsGone(err) || sandbox.HintOf(err) == "" {
		k.t.Errorf("Create: %v (hint %q), want an error with a hint", err, sandbox.HintOf(err))
	}
}

// hung attaches to a box whose node accepts connections and does not answer.
func (k *kwokCluster) hung(d *Driver, ref string) {
	k.t.Helper()
	pid := k.pid("kwok")
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		k.t.Fatal(err)
	}
	began := time.Now()
	_, err := d.Attach(context.Background(), ref)
	if cerr := syscall.Kill(pid, syscall.SIGCONT); cerr != nil {
		k.t.Fatal(cerr)
	}
	k.t.Logf("Attach to a box whose node does not answer: %v; %v (kind %s, hint %q)", time.Since(began).Round(time.Millisecond), err, sandbox.KindOf(err), sandbox.HintOf(err))
	if driver.IsGone(err) || sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
		k.t.Errorf("Attach: %v (kind %s, hint %q), want unavailable with a hint", err, sandbox.KindOf(err), sandbox.HintOf(err))
	}
}

// streams measures streams to programs, of which a box needs at least one.
func (k *kwokCluster) streams(a *api, refs []string, n int) {
	k.t.Helper()
	before, free := k.programs(), inUse()
	k.begin()
	streams := make([]*stream, n)
	k.parallel(n, 16, func(i int) error {
		s, err := a.exec(context.Background(), podName(refs[i]), []string{"cat"})
		if err != nil {
			return err
		}
		streams[i] = s
		return echo(s)
	})
	with, own := k.programs(), inUse()
	k.end("%d streams opened; %.0f KiB of each in the driver, %.0f KiB in the API server, %.0f KiB in kwok", n, (own-free)*1024/float64(n),
		(with["kube-apiserver"].rss-before["kube-apiserver"].rss)*1024/float64(n), (with["kwok"].rss-before["kwok"].rss)*1024/float64(n))
	k.begin()
	k.parallel(10*n, 16, func(i int) error { return echo(streams[i%n]) })
	k.end("%d messages there and back", 10*n)
	for _, s := range streams {
		if s != nil {
			s.Close()
		}
	}
}

// echo sends a message to a stream of cat, and reads it back.
func echo(s *stream) error {
	if err := s.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := s.Write([]byte("hello\n")); err != nil {
		return err
	}
	var got [16]byte
	if n, err := s.Read(got[:]); err != nil || string(got[:n]) != "hello\n" {
		return fmt.Errorf("cat answers %q, %w: %s", got[:n], err, s.Stderr())
	}
	return nil
}

// killServer kills the API server, which is started again a second later.
func (k *kwokCluster) killServer(d *Driver, a *api, id, ref string) {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	began, seen := time.Now(), make(chan error, 1)
	waits := make(chan struct{})
	var first sync.Once
	go func() {
		seen <- a.watch.until(ctx, id, podName(ref), func(pod *corev1.Pod) (bool, error) {
			first.Do(func() { close(waits) })
			return pod.Labels["changed"] == "after", nil
		})
	}()
	<-waits
	if err := syscall.Kill(k.pid("kube-apiserver"), syscall.SIGKILL); err != nil {
		k.t.Fatal(err)
	}
	try := func(f func() error) time.Duration {
		for f() != nil && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		return time.Since(began).Round(time.Millisecond)
	}
	var lists time.Duration
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		lists = try(func() error { _, err := d.List(ctx); return err })
	}()
	changed := try(func() error { return k.label(ctx, podName(ref), "after") })
	err := <-seen
	saw := time.Since(began).Round(time.Millisecond)
	<-listed
	k.t.Logf("after the API server was killed: it accepts a change after %v, the watch has it after %v (%v), a list is had after %v", changed, saw, err, lists)
	if err != nil || ctx.Err() != nil {
		k.t.Errorf("the watch does not come back: %v", errors.Join(err, ctx.Err()))
	}
}

// discard measures the end of boxes, as the sweep ends those without a record.
func (k *kwokCluster) discard(d *Driver, c *calls, refs []string, atOnce int) {
	k.t.Helper()
	c.take()
	k.begin()
	k.parallel(len(refs), atOnce, func(i int) error { return d.Discard(context.Background(), refs[i]) })
	rate := float64(len(refs)) / time.Since(k.began).Seconds()
	k.end("%d Pods discarded, %d at once: %.1f a second; calls: %s", len(refs), atOnce, rate, c.take())
}
