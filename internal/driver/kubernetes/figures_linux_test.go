package kubernetes

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// TestFiveThousandPods measures the driver with 5,000 Pods of a cluster without nodes:
// the memory of the watch, the reaction to a change of a Pod, and a list of all. No
// figure decides whether the test passes. It takes a while, so it needs
// GLOVEBOX_FIGURES.
func TestFiveThousandPods(t *testing.T) {
	if os.Getenv("GLOVEBOX_FIGURES") == "" {
		t.Skip("GLOVEBOX_FIGURES is not set")
	}
	const most, changes = 5000, 500
	f := newFakeCluster(t)
	d := f.open(t, nil)
	cpu := func() time.Duration {
		var used unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
			t.Fatal(err)
		}
		return time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	a, err := d.conn.open()
	if err != nil {
		t.Fatal(err)
	}
	id, err := d.state.ID()
	if err != nil {
		t.Fatal(err)
	}
	for i := range most {
		pod, err := samplePod(&d.opts)
		if err != nil {
			t.Fatal(err)
		}
		pod.Name = fmt.Sprintf("pod-%d", i)
		pod.Status.Phase = corev1.PodRunning
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: boxContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
		f.put("ADDED", pod)
	}
	memory := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapInuse+m.StackInuse) / (1 << 20)
	}
	before := memory()
	// The first waiter begins the watch.
	changed := func(i int) time.Duration {
		name, seen := fmt.Sprintf("pod-%d", i), make(chan time.Time, 1)
		var first sync.Once
		waits := make(chan struct{})
		go func() {
			err := a.watch.until(context.Background(), id, name, func(pod *corev1.Pod) (bool, error) {
				first.Do(func() { close(waits) })
				return pod.Status.Reason == "changed", nil
			})
			if err != nil {
				t.Error(err)
			}
			seen <- time.Now()
		}()
		<-waits
		began := time.Now()
		f.change(name, func(pod *corev1.Pod) { pod.Status.Reason = "changed" })
		return (<-seen).Sub(began)
	}
	changed(0)
	t.Logf("the watch of %d Pods, at rest: %.1f MiB more memory in use", most, memory()-before)
	took := make([]time.Duration, changes)
	for i := range took {
		took[i] = changed(1 + i)
	}
	slices.Sort(took)
	t.Logf("%d Pods: the reaction to a change in %v / %v", most, took[changes/2], took[changes*99/100])

	began, used := time.Now(), cpu()
	refs, err := d.List(t.Context())
	if err != nil || len(refs) != most {
		t.Fatalf("List: %d, %v", len(refs), err)
	}
	t.Logf("%d Pods: a list in %v, with %v of CPU time in the driver and the cluster", most, time.Since(began).Round(time.Millisecond), (cpu() - used).Round(time.Millisecond))

	// All Pods are waited for at once, as if all sandboxes started together.
	var waiting, ended sync.WaitGroup
	waiting.Add(most)
	for i := range most {
		var first sync.Once
		ended.Go(func() {
			err := a.watch.until(context.Background(), id, fmt.Sprintf("pod-%d", i), func(pod *corev1.Pod) (bool, error) {
				first.Do(waiting.Done)
				return pod.Labels["all"] != "", nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	waiting.Wait()
	t.Logf("%d waiters: %.1f MiB more memory in use", most, memory()-before)
	began, used = time.Now(), cpu()
	for i := range most {
		f.change(fmt.Sprintf("pod-%d", i), func(pod *corev1.Pod) { pod.Labels["all"] = "yes" })
	}
	ended.Wait()
	t.Logf("%d changes, and all waiters woken, in %v, with %v of CPU time in the driver and the cluster", most, time.Since(began).Round(time.Millisecond), (cpu() - used).Round(time.Millisecond))
}
