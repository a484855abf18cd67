package kubernetes

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A fakeCluster is an API server with Pods alone, and without nodes.
type fakeCluster struct {
	*httptest.Server

	// refuse, if not nil, may answer a request. It reports whether it did.
	refuse func(w http.ResponseWriter, r *http.Request) bool
	// made, if not nil, changes a Pod that was created, as the nodes would.
	made func(*corev1.Pod)

	mu       sync.Mutex
	version  int
	pods     map[string]*corev1.Pod
	watchers map[chan event]bool
	watches  int // how many began
}

type event struct {
	Type   string      `json:"type"`
	Object *corev1.Pod `json:"object"`
}

func newFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{pods: map[string]*corev1.Pod{}, watchers: map[chan event]bool{}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	return f
}

// open returns a driver that uses the cluster.
func (f *fakeCluster) open(t *testing.T, change func(*Options)) *Driver {
	t.Helper()
	dir := t.TempDir()
	config := filepath.Join(dir, "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "fake",
"clusters": [{"name": "fake", "cluster": {"server": %q}}], "users": [{"name": "fake", "user": {}}],
"contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake", "namespace": "boxes"}}]}`, f.URL)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := Options{Kubeconfig: config, StateDir: dir, RuntimeClass: "gvisor", GuestImage: "example.com/glovebox:1", StartTimeout: time.Minute}
	if change != nil {
		change(&opts)
	}
	d, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return d
}

func testSpec() *driver.Spec {
	return &driver.Spec{
		ID: sandbox.NewID(), Image: "python:3-slim", Hostname: "sandbox", Limits: sandbox.DefaultLimits(), Network: sandbox.NetworkNone,
		AllowUnenforced: []sandbox.ControlName{sandbox.ControlProcesses},
	}
}

// status answers with a Status, as the API server does for errors.
func status(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func answer(w http.ResponseWriter, object any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(object)
}

func (f *fakeCluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if f.refuse != nil && f.refuse(w, r) {
		return
	}
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods"), "/")
	switch {
	case !strings.HasPrefix(r.URL.Path, "/api/v1/namespaces/boxes/pods"):
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, r.URL.Path+" is not there")
	case r.Method == http.MethodPost && name == "":
		f.create(w, r)
	case r.Method == http.MethodDelete:
		f.delete(w, name)
	case r.URL.Query().Get("watch") == "true":
		f.follow(w, r)
	case name == "":
		f.mu.Lock()
		defer f.mu.Unlock()
		list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(f.version)}}
		for _, pod := range f.pods {
			if selects(r.URL.Query().Get("labelSelector"), pod) {
				list.Items = append(list.Items, *pod)
			}
		}
		answer(w, list)
	default:
		f.mu.Lock()
		defer f.mu.Unlock()
		if pod := f.pods[name]; pod != nil {
			answer(w, pod)
		} else {
			status(w, http.StatusNotFound, metav1.StatusReasonNotFound, `pods "`+name+`" not found`)
		}
	}
}

// selects reports whether a selector of labels with = and != matches a Pod.
func selects(selector string, pod *corev1.Pod) bool {
	for term := range strings.SplitSeq(selector, ",") {
		name, value, _ := strings.Cut(term, "=")
		name, other := strings.CutSuffix(name, "!")
		if name != "" && (pod.Labels[name] == value) == other {
			return false
		}
	}
	return true
}

func (f *fakeCluster) create(w http.ResponseWriter, r *http.Request) {
	var pod corev1.Pod
	if err := json.NewDecoder(r.Body).Decode(&pod); err != nil {
		status(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
		return
	}
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	pod.UID, pod.CreationTimestamp = types.UID(pod.Name), metav1.Now()
	pod.Status.Phase = corev1.PodPending
	if f.made != nil {
		f.made(&pod)
	}
	f.put("ADDED", &pod)
	answer(w, &pod)
}

// put stores a Pod and tells the watchers.
func (f *fakeCluster) put(kind string, pod *corev1.Pod) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.putLocked(kind, pod)
}

func (f *fakeCluster) putLocked(kind string, pod *corev1.Pod) {
	f.version++
	pod = pod.DeepCopy()
	pod.ResourceVersion = strconv.Itoa(f.version)
	if kind == "DELETED" {
		delete(f.pods, pod.Name)
	} else {
		f.pods[pod.Name] = pod
	}
	for ch := range f.watchers {
		ch <- event{kind, pod}
	}
}

// change changes a Pod, as its node would. A Pod that was deleted meanwhile
// stays deleted: the API server answers a node's change of it with 404.
func (f *fakeCluster) change(name string, change func(*corev1.Pod)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pod := f.pods[name].DeepCopy()
	if pod == nil {
		return
	}
	change(pod)
	f.putLocked("MODIFIED", pod)
}

func (f *fakeCluster) delete(w http.ResponseWriter, name string) {
	f.mu.Lock()
	pod := f.pods[name]
	f.mu.Unlock()
	if pod == nil {
		status(w, http.StatusNotFound, metav1.StatusReasonNotFound, `pods "`+name+`" not found`)
		return
	}
	f.put("DELETED", pod)
	answer(w, pod)
}

func (f *fakeCluster) follow(w http.ResponseWriter, r *http.Request) {
	ch := make(chan event, 1000)
	f.mu.Lock()
	f.watchers[ch] = true
	f.watches++
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		delete(f.watchers, ch)
		f.mu.Unlock()
	}()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	for {
		select {
		case e := <-ch:
			if !selects(r.URL.Query().Get("labelSelector"), e.Object) {
				continue
			}
			_ = json.NewEncoder(w).Encode(e)
			w.(http.Flusher).Flush()
		case <-r.Context().Done():
			return
		}
	}
}

// names returns the Pods that are left.
func (f *fakeCluster) names() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name := range f.pods {
		names = append(names, name)
	}
	return names
}

// nothingLeft checks that no Pod is left.
func (f *fakeCluster) nothingLeft(t *testing.T) {
	t.Helper()
	if left := f.names(); len(left) > 0 {
		t.Errorf("Pods are left: %q", left)
	}
}
