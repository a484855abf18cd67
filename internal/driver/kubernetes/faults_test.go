package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// waiting is the status of a container that waits for a reason.
func waiting(name, reason, message string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}}
}

// TestStartVerdicts has the cluster refuse, hinder and end a Pod. Each case must end
// with an error of the right kind that names the cause and a remedy, and leave no Pod.
func TestStartVerdicts(t *testing.T) {
	for _, test := range []struct {
		name  string
		made  func(*corev1.Pod)
		later func(*corev1.Pod) // a change after a while
		opts  func(*Options)
		kind  sandbox.Kind
		text  string
	}{
		{
			name: "image pull error", kind: sandbox.NotFound, text: "no such manifest",
			made: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting(boxContainer, "ImagePullBackOff", "no such manifest")}
			},
		},
		{
			name: "image pull error later", kind: sandbox.NotFound, text: "no such manifest",
			made: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting(boxContainer, "ErrImagePull", "first try")}
			},
			later: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting(boxContainer, "ImagePullBackOff", "no such manifest")}
			},
		},
		{
			name: "guest image pull error", kind: sandbox.Unavailable, text: "guest's image",
			made: func(p *corev1.Pod) {
				p.Status.InitContainerStatuses = []corev1.ContainerStatus{waiting(guestContainer, "ErrImageNeverPull", "not here")}
			},
		},
		{
			name: "runtime without the program", kind: sandbox.Unsupported, text: "exec format error",
			made: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{waiting(boxContainer, "RunContainerError", "exec format error")}
			},
		},
		{
			name: "endless Pending", kind: sandbox.Unavailable, text: "Insufficient memory",
			opts: func(o *Options) { o.StartTimeout = 200 * time.Millisecond },
			made: func(p *corev1.Pod) {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: "Unschedulable", Message: "0/3 nodes: Insufficient memory"}}
			},
		},
		{
			name: "eviction", kind: sandbox.Unavailable, text: "Evicted",
			later: func(p *corev1.Pod) {
				p.Status.Phase, p.Status.Reason, p.Status.Message = corev1.PodFailed, "Evicted", "The node was low on resource: memory"
			},
		},
		{
			name: "node loss", kind: sandbox.Unavailable, text: "DeletionByTaintManager",
			later: func(p *corev1.Pod) {
				now := metav1.Now()
				p.DeletionTimestamp = &now
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "DeletionByTaintManager", Message: "node is unreachable"}}
			},
		},
		{
			name: "guest ended", kind: sandbox.Unavailable, text: "no such kernel",
			later: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: boxContainer, State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", Message: "no such kernel"},
				}}}
			},
		},
		{
			name: "memory full at the start", kind: sandbox.Unsupported, text: "memory",
			later: func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: boxContainer, State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "OOMKilled"},
				}}}
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			drivertest.CheckGoroutines(t, "net/http/httptest", "net/http.(*conn)", "net/http.(*persistConn)", "net/http.(*Server)")
			f := newFakeCluster(t)
			f.made = test.made
			d := f.open(t, test.opts)
			spec := testSpec()
			if test.later != nil {
				go func() {
					for len(f.names()) == 0 {
						time.Sleep(time.Millisecond)
					}
					f.change(podName(spec.ID), test.later)
				}()
			}
			_, err := d.Create(t.Context(), spec)
			if sandbox.KindOf(err) != test.kind || !strings.Contains(err.Error(), test.text) || sandbox.HintOf(err) == "" {
				t.Errorf("Create: %v (kind %s, hint %q), want kind %s, %q and a hint", err, sandbox.KindOf(err), sandbox.HintOf(err), test.kind, test.text)
			}
			f.nothingLeft(t)
		})
	}
}

// An endingContext is one whose time is up when ended is closed.
type endingContext struct {
	context.Context
	ended chan struct{}
}

func (c endingContext) Done() <-chan struct{} { return c.ended }

func (c endingContext) Err() error {
	select {
	case <-c.ended:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestCallersTime: a caller whose own time is up first learns why the Pod waits.
func TestCallersTime(t *testing.T) {
	f := newFakeCluster(t)
	ctx := endingContext{t.Context(), make(chan struct{})}
	end := sync.OnceFunc(func() { close(ctx.ended) })
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/api/v1/namespaces/boxes/events" {
			answer(w, corev1.EventList{TypeMeta: metav1.TypeMeta{Kind: "EventList", APIVersion: "v1"}, Items: []corev1.Event{{Reason: "FailedScheduling", Message: "Insufficient memory"}}})
			return true
		}
		if r.URL.Query().Get("watch") == "true" {
			end()
		}
		return false
	}
	_, err := f.open(t, func(o *Options) { o.StartTimeout = time.Hour }).Create(ctx, testSpec())
	if !errors.Is(err, context.DeadlineExceeded) || sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "Insufficient memory") || sandbox.HintOf(err) == "" {
		t.Errorf("Create: %v (kind %s, hint %q), want the reason of the cluster", err, sandbox.KindOf(err), sandbox.HintOf(err))
	}
	f.nothingLeft(t)
}

// TestRefusals has the API server refuse the order for a Pod.
func TestRefusals(t *testing.T) {
	for _, test := range []struct {
		name    string
		code    int
		reason  metav1.StatusReason
		message string
		kind    sandbox.Kind
		retry   bool
	}{
		{"quota", http.StatusForbidden, metav1.StatusReasonForbidden, `pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=5, limited: pods=5`, sandbox.Exhausted, true},
		{"PodSecurity", http.StatusForbidden, metav1.StatusReasonForbidden, `pods "x" is forbidden: violates PodSecurity "restricted:latest": volumes`, sandbox.Unsupported, false},
		{"runtime class", http.StatusForbidden, metav1.StatusReasonForbidden, `pods "x" is forbidden: pod rejected: RuntimeClass "gvisor" not found`, sandbox.Unsupported, false},
		{"rights", http.StatusForbidden, metav1.StatusReasonForbidden, `pods is forbidden: User "u" cannot create resource "pods"`, sandbox.Unavailable, false},
		{"namespace", http.StatusNotFound, metav1.StatusReasonNotFound, `namespaces "boxes" not found`, sandbox.Unavailable, false},
		{"image name", http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, `Pod "x" is invalid: spec.containers[0].image: Required value`, sandbox.Invalid, false},
		{"overload", http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "too many", sandbox.Unavailable, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeCluster(t)
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					status(w, test.code, test.reason, test.message)
				}
				return r.Method == http.MethodPost
			}
			_, err := f.open(t, nil).Create(t.Context(), testSpec())
			if sandbox.KindOf(err) != test.kind || sandbox.HintOf(err) == "" || (sandbox.RetryAfterOf(err) > 0) != test.retry {
				t.Errorf("Create: %v (kind %s, hint %q, retry %v), want kind %s", err, sandbox.KindOf(err), sandbox.HintOf(err), sandbox.RetryAfterOf(err), test.kind)
			}
		})
	}
}

// TestSpecRefused: nothing is asked of the cluster for a spec that cannot be.
func TestSpecRefused(t *testing.T) {
	f := newFakeCluster(t)
	f.refuse = func(_ http.ResponseWriter, r *http.Request) bool {
		t.Errorf("the driver asks for %s %s", r.Method, r.URL)
		return false
	}
	for name, change := range map[string]func(*driver.Spec){
		"network":   func(s *driver.Spec) { s.Network = sandbox.NetworkInternet }, // there is no program for it
		"workspace": func(s *driver.Spec) { s.Workspace = t.TempDir() },
		"host":      func(s *driver.Spec) { s.Image = sandbox.ImageHost },
		"processes": func(s *driver.Spec) { s.AllowUnenforced = nil },
	} {
		spec := testSpec()
		change(spec)
		if _, err := f.open(t, nil).Create(t.Context(), spec); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
			t.Errorf("%s: %v, kind %s, hint %q", name, err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
	}
	for name, change := range map[string]func(*Options){
		"guest_image":   func(o *Options) { o.GuestImage = "" },
		"runtime_class": func(o *Options) { o.RuntimeClass = "" },
	} {
		if _, err := f.open(t, change).Create(t.Context(), testSpec()); !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// TestLostAnswer: the Pod was made, and its maker does not learn that.
func TestLostAnswer(t *testing.T) {
	for name, lose := range map[string]func(cancel func(), w http.ResponseWriter){
		"cancelled": func(cancel func(), w http.ResponseWriter) { cancel() },
		"cut":       func(_ func(), w http.ResponseWriter) {},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFakeCluster(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPost {
					return false
				}
				f.create(httptest.NewRecorder(), r)
				lose(cancel, w)
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return true
				}
				conn.Close()
				return true
			}
			_, err := f.open(t, nil).Create(ctx, testSpec())
			if err == nil {
				t.Error("Create succeeds without an answer")
			}
			if name == "cancelled" && !errors.Is(err, context.Canceled) {
				t.Errorf("Create: %v, want the context's error", err)
			}
			f.nothingLeft(t)
		})
	}
}

// TestServerDown: calls fail at once, with a time for the next try.
func TestServerDown(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	f.Close()
	_, err := d.Create(t.Context(), testSpec())
	checkDown(t, "Create", err)
	_, err = d.List(t.Context())
	checkDown(t, "List", err)
	_, err = d.Attach(t.Context(), sandbox.NewID())
	checkDown(t, "Attach", err)
	checkDown(t, "Discard", d.Discard(t.Context(), sandbox.NewID()))
	if err := d.Probe(t.Context()); !errors.Is(err, driver.ErrUnavailable) || sandbox.HintOf(err) == "" {
		t.Errorf("Probe: %v", err)
	}
}

func checkDown(t *testing.T, call string, err error) {
	t.Helper()
	if sandbox.KindOf(err) != sandbox.Unavailable || sandbox.RetryAfterOf(err) == 0 || sandbox.HintOf(err) == "" || driver.IsGone(err) {
		t.Errorf("%s while the API server is down: %v (kind %s, retry %v)", call, err, sandbox.KindOf(err), sandbox.RetryAfterOf(err))
	}
}

// running makes a Pod that runs, of a state directory.
func (f *fakeCluster) running(t *testing.T, d *Driver) string {
	t.Helper()
	spec := testSpec()
	plan, err := container.NewPlan(d.state, &container.Record{Spec: *spec, Disk: container.DiskMemory, OneUser: true}, abilities, nil)
	if err != nil {
		t.Fatal(err)
	}
	pod := podOf(&d.opts, plan, spec.Image, false)
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.Status.Phase = corev1.PodRunning
	pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: boxContainer, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}
	f.put("ADDED", pod)
	return spec.ID
}

// TestManyCreations: callers that create Pods at the same time wait for their turn.
func TestManyCreations(t *testing.T) {
	f := newFakeCluster(t)
	var mu sync.Mutex
	var creating, most int
	var first sync.Once
	full := make(chan struct{})
	f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		creating++
		most = max(most, creating)
		if creating == createAtOnce {
			first.Do(func() { close(full) })
		}
		mu.Unlock()
		<-full // as many as may come are here
		f.create(w, r)
		mu.Lock()
		creating--
		mu.Unlock()
		return true
	}
	a, err := f.open(t, nil).conn.open()
	if err != nil {
		t.Fatal(err)
	}
	var callers sync.WaitGroup
	create := func(ctx context.Context, name string) error {
		_, err := a.create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, false)
		return err
	}
	for i := range 4 * createAtOnce {
		callers.Go(func() {
			if err := create(t.Context(), fmt.Sprint("pod-", i)); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	f.refuse = nil
	for range createAtOnce {
		a.creating <- struct{}{}
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := create(gone, "late"); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that gave up while it waited: %v", err)
	}
	if n := len(f.names()); n != 4*createAtOnce || most != createAtOnce {
		t.Errorf("%d Pods, %d at a time; want %d, %d at a time", n, most, 4*createAtOnce, createAtOnce)
	}
}

// TestLostNode: a node that is lost reports nothing, but its Pod is overdue.
func TestLostNode(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	ref := f.running(t, d)
	f.change(podName(ref), func(p *corev1.Pod) {
		due := metav1.NewTime(time.Now().Add(-2 * podstate.LostTime))
		p.DeletionTimestamp = &due
	})
	if _, err := d.Attach(t.Context(), ref); !driver.IsGone(err) {
		t.Errorf("Attach to a box of a lost node: %v", err)
	}
}

// TestOthersPods: drivers of other state directories leave each other's Pods alone,
// except ended ones.
func TestOthersPods(t *testing.T) {
	f := newFakeCluster(t)
	mine, other := f.open(t, nil), f.open(t, nil)
	ref := f.running(t, other)
	if err := mine.Discard(t.Context(), ref); err != nil {
		t.Errorf("Discard: %v", err)
	}
	if _, err := mine.Attach(t.Context(), ref); !driver.IsGone(err) {
		t.Errorf("Attach: %v", err)
	}
	sweep := func() []string {
		found, err := mine.Leftovers(t.Context(), true)
		if err != nil {
			t.Errorf("Leftovers: %v", err)
		}
		return found
	}
	if found := sweep(); len(found) > 0 || len(f.names()) != 1 {
		t.Fatalf("a Pod that runs is swept: %q", found)
	}
	f.change(podName(ref), func(p *corev1.Pod) {
		p.Status.Phase = corev1.PodSucceeded
		p.CreationTimestamp = metav1.NewTime(time.Now().Add(-time.Hour))
	})
	if found := sweep(); len(found) != 1 {
		t.Errorf("a Pod that ended is not swept: %q", found)
	}
	f.nothingLeft(t)
}
