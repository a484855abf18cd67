package kubernetes

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
)

// TestLateReport: a node reports the end of a container after the guest's answers
// have stopped.
func TestLateReport(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	ref := f.running(t, d)
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for watching := 0; watching == 0; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			watching = f.watches
			f.mu.Unlock()
		}
		f.change(podName(ref), func(p *corev1.Pod) {
			p.Status.Phase = corev1.PodFailed
			p.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"}}
		})
	}()
	s, err := d.platform(a).AwaitEnd(t.Context(), ref)
	if err != nil || s.Running || !s.OOMKilled {
		t.Errorf("AwaitEnd: %+v, %v; want a container that was killed for its memory", s, err)
	}
	if _, err := d.Attach(t.Context(), ref); !driver.IsGone(err) {
		t.Errorf("Attach to an ended box: %v", err)
	}
	if refs, err := d.List(t.Context()); err != nil || !slices.Equal(refs, []string{ref}) {
		t.Errorf("List: %q, %v", refs, err)
	}
	if err := d.Discard(t.Context(), ref); err != nil {
		t.Errorf("Discard: %v", err)
	}
	f.nothingLeft(t)
	if f.watches != 1 {
		t.Errorf("%d watches, want one for all", f.watches)
	}
}

// TestWatchEnds: changes are not missed if watches end again and again.
func TestWatchEnds(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	ref := f.running(t, d)
	seen := make(chan bool, 100)
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Get("watch") != "true" {
			return false
		}
		seen <- true
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`+"\n")
		return true
	}
	go func() {
		<-seen
		f.change(podName(ref), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	}()
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.platform(a).AwaitEnd(t.Context(), ref); err != nil || s.Running {
		t.Errorf("AwaitEnd: %+v, %v", s, err)
	}
}

// TestWatchGoesOn: a watch that the API server ends goes on where it ended. Those who wait
// do not ask each time: thousands of questions at once would slow the next watch down.
func TestWatchGoesOn(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	ref := f.running(t, d)
	const ends = 20
	var asked, watches atomic.Int64
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, podName(ref)) {
			asked.Add(1)
		}
		if r.URL.Query().Get("watch") != "true" {
			return false
		}
		n := watches.Add(1)
		if n > ends {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		fmt.Fprintf(w, `{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"%d"}}}`+"\n", 100+n)
		return true
	}
	go func() {
		for watching := 0; watching == 0; time.Sleep(time.Millisecond) {
			f.mu.Lock()
			watching = f.watches
			f.mu.Unlock()
		}
		f.change(podName(ref), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	}()
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	if s, err := d.platform(a).AwaitEnd(t.Context(), ref); err != nil || s.Running {
		t.Errorf("AwaitEnd: %+v, %v", s, err)
	}
	if n := asked.Load(); n > 2 {
		t.Errorf("the driver asked for the Pod %d times while its watch ended %d times, want at its beginning alone", n, ends)
	}
}

// TestFollow: those who follow a Pod for long do not ask for it each time when the watch may
// have missed changes. They learn of its end nevertheless.
func TestFollow(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	const pods, breaks = 50, 5
	var refs []string
	for range pods {
		refs = append(refs, f.running(t, d))
	}
	ended, removed := refs[0], refs[1]
	following := make(chan struct{})
	var asked, watches atomic.Int64
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/pods/") {
			asked.Add(1)
		}
		if r.URL.Query().Get("watch") != "true" {
			return false
		}
		<-following
		n := watches.Add(1)
		if n > breaks {
			return false
		}
		if n == breaks { // while there is no watch
			f.change(podName(ended), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
			f.mu.Lock()
			delete(f.pods, podName(removed))
			f.mu.Unlock()
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusOK)
		_, _ = io.WriteString(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","code":410,"reason":"Expired"}}`+"\n")
		return true
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	p := d.platform(a)
	over := make(chan string, pods)
	var all sync.WaitGroup
	for _, ref := range refs {
		all.Go(func() {
			if p.Ended(ctx, ref) == nil {
				over <- ref
			}
		})
	}
	for asked.Load() < pods {
		time.Sleep(time.Millisecond)
	}
	close(following)
	next := func() string {
		t.Helper()
		select {
		case ref := <-over:
			return ref
		case <-time.After(time.Minute):
			t.Fatal("the end of a Pod is not noticed")
			return ""
		}
	}
	got := []string{next(), next()}
	slices.Sort(got)
	want := []string{ended, removed}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("ended: %v, want %v", got, want)
	}
	if n := asked.Load(); n > pods+2 {
		t.Errorf("%d questions for %d Pods that are followed, while the watch broke %d times", n, pods, breaks)
	}
	for watching := 0; watching == 0; time.Sleep(time.Millisecond) { // the fake cluster repeats no change
		f.mu.Lock()
		watching = f.watches
		f.mu.Unlock()
	}
	f.change(podName(refs[2]), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	if ref := next(); ref != refs[2] {
		t.Errorf("%s ended, want %s", ref, refs[2])
	}
	cancel()
	all.Wait()
	if left := a.watch.followed(); len(left) > 0 {
		t.Errorf("%d Pods are still followed", len(left))
	}
}

// TestLostState: who waits asks again if the answer was lost, also while the watch is well.
func TestLostState(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	ref := f.running(t, d)
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	f.change(podName(ref), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
	gaveUp, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.platform(a).AwaitEnd(gaveUp, ref); err == nil { // begins the watch
		t.Error("AwaitEnd by a caller that gave up succeeds")
	}
	for watching := 0; watching == 0; time.Sleep(time.Millisecond) {
		f.mu.Lock()
		watching = f.watches
		f.mu.Unlock()
	}
	var lost atomic.Bool
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		first := strings.HasSuffix(r.URL.Path, podName(ref)) && lost.CompareAndSwap(false, true)
		if first {
			status(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "overloaded")
		}
		return first
	}
	id, err := d.state.ID()
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	defer stop()
	err = a.watch.until(ctx, id, podName(ref), func(pod *corev1.Pod) (bool, error) { return pod.Status.Phase == corev1.PodSucceeded, nil })
	if err != nil || !lost.Load() {
		t.Errorf("a caller whose first answer was lost: %v", err)
	}
}
