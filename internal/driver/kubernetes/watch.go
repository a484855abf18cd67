package kubernetes

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
)

// A podWatch follows the Pods of one state directory, for those who wait for one of
// them. It keeps no Pods. Its methods are safe for concurrent use.
type podWatch struct {
	api *api

	mu      sync.Mutex
	waiters map[string]map[*waiter]bool // by the name of the Pod; guarded by mu
	stop    context.CancelFunc          // nil before the first use; guarded by mu
	closed  bool                        // guarded by mu
	done    chan struct{}               // closed when the watch has ended
}

// A waiter waits for changes of one Pod.
type waiter struct {
	// changes has the newest state of the Pod that was not read. A change without a
	// Pod means that the waiter must ask the API server.
	changes chan *corev1.Pod
	// follows means that the waiter is one of thousands, and waits for as long as its Pod
	// runs. It does not ask whenever the watch may have missed changes.
	follows bool
}

func newPodWatch(a *api) *podWatch {
	return &podWatch{api: a, waiters: map[string]map[*waiter]bool{}, done: make(chan struct{})}
}

// until waits until check is satisfied with the state of a Pod of the state directory
// id, or fails. The Pod is nil if there is none. While the API server does not answer,
// until waits for it, so the caller bounds ctx.
func (w *podWatch) until(ctx context.Context, id, name string, check func(*corev1.Pod) (bool, error)) error {
	return w.wait(ctx, id, name, newWaiter(), check)
}

// follow is until for a wait that may last as long as the Pod.
func (w *podWatch) follow(ctx context.Context, id, name string, check func(*corev1.Pod) (bool, error)) error {
	me := newWaiter()
	me.follows = true
	return w.wait(ctx, id, name, me, check)
}

func newWaiter() *waiter { return &waiter{changes: make(chan *corev1.Pod, 1)} }

func (w *podWatch) wait(ctx context.Context, id, name string, me *waiter, check func(*corev1.Pod) (bool, error)) error {
	w.register(id, name, me)
	defer w.forget(name, me)
	var pod *corev1.Pod
	for {
		var again <-chan time.Time
		if pod == nil {
			found, err := w.api.pod(ctx, name)
			switch {
			case err == nil:
				pod = found
			case ctx.Err() != nil:
				return ctx.Err()
			case isTransient(err):
				again = time.After(longestPause) // the watch may be well, and have nothing to tell
			case !apierrors.IsNotFound(err):
				return explain(err)
			}
		}
		if again == nil {
			if done, err := check(pod); done || err != nil {
				return err
			}
		}
		select {
		case pod = <-me.changes:
		case <-again:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// register adds a waiter, and begins the watch at the first one.
func (w *podWatch) register(id, name string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiters[name] == nil {
		w.waiters[name] = map[*waiter]bool{}
	}
	w.waiters[name][me] = true
	if w.stop == nil && !w.closed {
		ctx, cancel := context.WithCancel(context.Background())
		w.stop = cancel
		go w.run(ctx, container.LabelState+"="+id)
	}
}

func (w *podWatch) forget(name string, me *waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.waiters[name], me)
	if len(w.waiters[name]) == 0 {
		delete(w.waiters, name)
	}
}

// tell passes the state of a Pod on to its waiters. Without a Pod, they ask.
func (w *podWatch) tell(name string, pod *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for me := range w.waiters[name] {
		me.put(pod)
	}
}

// tellAll has the waiters ask that do not follow, because the watch may have missed
// changes.
func (w *podWatch) tellAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, some := range w.waiters {
		for me := range some {
			if !me.follows {
				me.put(nil)
			}
		}
	}
}

// tellFollowers does the same for those that follow: one list answers all of them. A Pod
// that is not in the list may be newer, so its followers ask.
func (w *podWatch) tellFollowers(ctx context.Context, selector string) error {
	missing := w.followed()
	if len(missing) == 0 {
		return nil
	}
	err := w.api.list(ctx, selector, func(pod *corev1.Pod) {
		if missing[pod.Name] {
			delete(missing, pod.Name)
			w.tell(pod.Name, pod)
		}
	})
	if err != nil {
		return err
	}
	for name := range missing {
		w.tell(name, nil)
	}
	return nil
}

// followed returns the names of the Pods that are followed.
func (w *podWatch) followed() map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	names := map[string]bool{}
	for name, some := range w.waiters {
		for me := range some {
			if me.follows {
				names[name] = true
			}
		}
	}
	return names
}

// put replaces a state that was not read. Only holders of the watch's lock call it.
func (m *waiter) put(pod *corev1.Pod) {
	select {
	case <-m.changes:
	default:
	}
	m.changes <- pod
}

const (
	// firstPause and longestPause are between attempts to watch.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second
)

// run watches until ctx ends.
func (w *podWatch) run(ctx context.Context, selector string) {
	defer close(w.done)
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, longestPause) {
		if w.once(ctx, selector) {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// once watches until the API server ends the watch, as it does every few minutes. It
// reports whether the watch began.
func (w *podWatch) once(ctx context.Context, selector string) bool {
	version, err := w.api.version(ctx, selector)
	w.tellAll() // without a watch, they look for themselves, at our pace
	if err == nil {
		err = w.tellFollowers(ctx, selector)
	}
	for err == nil && version != "" {
		var events watch.Interface
		if events, err = w.api.follow(ctx, selector, version); err != nil {
			break
		}
		version = w.read(events, version) // a watch that goes on from there misses nothing
		events.Stop()
	}
	return err == nil
}

// read passes events on until they end. It returns the version at which a new watch
// misses nothing, or "" if that is not known.
func (w *podWatch) read(events watch.Interface, version string) string {
	begun := version
	for e := range events.ResultChan() {
		pod, ok := e.Object.(*corev1.Pod)
		if !ok {
			return "" // an error, such as that the version is too old
		}
		version = pod.ResourceVersion
		switch e.Type {
		case watch.Added, watch.Modified:
			w.tell(pod.Name, pod)
		case watch.Deleted:
			w.tell(pod.Name, nil)
		}
	}
	if version == begun {
		return "" // a server that ends watches at once must not be asked without a pause
	}
	return version
}

// close ends the watch.
func (w *podWatch) close() {
	w.mu.Lock()
	stop := w.stop
	w.closed = true
	w.mu.Unlock()
	if stop != nil {
		stop()
		<-w.done
	}
}
