package kubernetes

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/doctor"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// runs has the node start a Pod, which becomes ready if it listens. Pods that dial end
// with a status.
func runs(status int32) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		box := corev1.ContainerStatus{Name: boxContainer}
		pod.Status.Phase, pod.Status.PodIP = corev1.PodRunning, "10.1.2.3"
		if len(pod.Spec.Containers[0].Args) == 1 {
			box.State.Running = &corev1.ContainerStateRunning{}
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		} else {
			box.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: status}
		}
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{box}
	}
}

// TestDoctorProbes runs the Pods that try whether policies hold, with each result that
// they can have.
func TestDoctorProbes(t *testing.T) {
	reached := runs(int32(probe.Tried | probe.ReachedPod | probe.ReachedAPIServer))
	for _, test := range []struct {
		name        string
		made        func(*corev1.Pod)
		limit       time.Duration // of a Pod's start; 0 is that of fake clusters
		refuse      func(r *http.Request) bool
		ok          bool
		detail, fix string
		left, pods  int // Pods that are left, and that were made
	}{
		{name: "denied", made: runs(int32(probe.Tried)), ok: true, detail: "reached neither", pods: 2},
		{name: "no API server", made: runs(int32(probe.Tried | probe.NoAPIServer)), ok: true, detail: "no address of the API server", pods: 2},
		{name: "late", made: runs(int32(probe.Tried | probe.Late)), ok: true, detail: "reached neither another one nor the API server, but did at its start", pods: 2},
		{name: "a Pod", made: runs(int32(probe.Tried | probe.ReachedPod)), detail: "reached another one", fix: "Calico", pods: 2},
		{name: "the API server", made: runs(int32(probe.Tried | probe.ReachedAPIServer)), detail: "reached the API server", fix: "Calico", pods: 2},
		{name: "both", made: reached, detail: "reached another one and the API server", fix: "Calico", pods: 2},
		{name: "another program", made: runs(0), detail: "not known whether policies hold: the probe ended with status 0", fix: "of this version", pods: 2},
		{
			name: "no image", detail: "not known whether policies hold: the cluster cannot get the image", fix: "see that", pods: 1,
			made: func(pod *corev1.Pod) {
				pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: boxContainer, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}}}}
			},
		},
		{name: "no room", made: func(*corev1.Pod) {}, limit: time.Millisecond, detail: "not known whether policies hold: the Pod did not start within", fix: "give the cluster room", pods: 1},
		{
			name: "never listens", limit: time.Millisecond, detail: "not known whether policies hold: the Pod did not start within", fix: "give the cluster room", pods: 1,
			made: func(pod *corev1.Pod) { runs(0)(pod); pod.Status.Conditions = nil },
		},
		{name: "no second Pod", made: runs(0), detail: "the namespace's quota is used up", fix: "ResourceQuota", pods: 1, refuse: func(r *http.Request) bool { return r.Method == http.MethodPost }},
		{name: "a Pod remains", made: runs(int32(probe.Tried)), detail: "remains until the server's next sweep", pods: 2, left: 2, refuse: func(r *http.Request) bool { return r.Method == http.MethodDelete }},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFakeCluster(t)
			var mu sync.Mutex
			var pods []*corev1.Pod // that were made; guarded by mu
			f.made = func(pod *corev1.Pod) {
				test.made(pod)
				mu.Lock()
				defer mu.Unlock()
				pods = append(pods, pod.DeepCopy())
			}
			f.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				isPods := strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods") && r.URL.Query().Get("dryRun") == ""
				if !isPods && !strings.HasSuffix(r.URL.Path, "/events") {
					(&lookedAt{}).serve(t, w, r)
					return true
				}
				mu.Lock()
				defer mu.Unlock()
				if test.refuse != nil && test.refuse(r) && len(pods) > 0 {
					status(w, http.StatusForbidden, metav1.StatusReasonForbidden, "exceeded quota")
					return true
				}
				return false
			}
			d := f.open(t, func(o *Options) {
				if test.limit != 0 {
					o.StartTimeout = test.limit
				}
			})
			checks := Doctor(t.Context(), d.opts, true)
			mu.Lock()
			defer mu.Unlock()
			i := slices.IndexFunc(checks, func(c Check) bool { return c.Name == "policy enforcement" })
			if i < 0 {
				t.Fatalf("nothing was tried: %+v", checks)
			}
			if c := checks[i]; c.OK != test.ok || c.Fatal || !strings.Contains(c.Detail, test.detail) || !strings.Contains(c.Fix, test.fix) || (c.Fix == "") != (test.fix == "") {
				t.Errorf("%+v, want ok %v, detail %q and fix %q", c, test.ok, test.detail, test.fix)
			}
			if len(pods) != test.pods || len(f.names()) != test.left {
				t.Errorf("%d Pods were made, and %q are left, want %d and %d", len(pods), f.names(), test.pods, test.left)
			}
			for _, pod := range pods {
				checkProbePod(t, pod)
			}
			if len(pods) == 2 {
				if got := pods[1].Spec.Containers[0].Args; !slices.Equal(got, []string{"probe-network", "10.1.2.3:7353"}) {
					t.Errorf("the second Pod has the arguments %q", got)
				}
			}
		})
	}
}

// checkProbePod checks that a Pod of the doctor has the labels and the confinement of a
// sandbox's, and ends by itself.
func checkProbePod(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	for _, name := range []string{labelManager, LabelNetwork, doctor.LabelProbe, container.LabelState, container.LabelSandbox} {
		if pod.Labels[name] == "" {
			t.Errorf("the Pod has no label %s: %v", name, pod.Labels)
		}
	}
	if pod.Labels[LabelNetwork] != string(sandbox.NetworkNone) {
		t.Errorf("policies select the label %q", pod.Labels[LabelNetwork])
	}
	if limit := pod.Spec.ActiveDeadlineSeconds; limit == nil || *limit <= 0 || time.Duration(*limit)*time.Second > leftoverAge {
		t.Errorf("the Pod ends after %v s", limit)
	}
	if len(pod.Spec.InitContainers) != 0 || len(pod.Spec.Volumes) != 0 || len(pod.Spec.Containers) != 1 {
		t.Errorf("the Pod has more than its program: %+v", pod.Spec)
	}
	box := pod.Spec.Containers[0]
	if box.Image != "example.com/glovebox:1" || len(box.Command) != 0 || len(box.VolumeMounts) != 0 || box.TerminationMessagePath != "" {
		t.Errorf("the container is %+v", box)
	}
	checkRestricted(t, pod)
}

// TestSweepOfProbes: the sweep leaves the Pods of a doctor that may be at work alone, and
// removes older ones.
func TestSweepOfProbes(t *testing.T) {
	f := newFakeCluster(t)
	d := f.open(t, nil)
	old := map[string]bool{}
	for _, age := range []time.Duration{0, leftoverAge + time.Minute} {
		pod, err := samplePod(&d.opts)
		if err != nil {
			t.Fatal(err)
		}
		pod.Labels[doctor.LabelProbe] = "network"
		pod.CreationTimestamp = metav1.NewTime(time.Now().Add(-age))
		f.put("ADDED", pod)
		old[pod.Name] = age > 0
	}
	refs, err := d.List(t.Context())
	if err != nil || len(refs) != 1 || !old[podName(refs[0])] {
		t.Fatalf("List: %q, %v, want the old Pod of %v", refs, err, old)
	}
	if err := d.Discard(t.Context(), refs[0]); err != nil {
		t.Fatal(err)
	}
	if left := f.names(); len(left) != 1 || old[left[0]] {
		t.Errorf("%q are left of %v", left, old)
	}
}
