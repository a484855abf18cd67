package kubernetes_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// What test/kubernetes.sh says of the cluster that it started. Its only node is this
// machine.
const (
	configEnv = "GLOVEBOX_TEST_KUBECONFIG"
	guestEnv  = "GLOVEBOX_TEST_GUEST_IMAGE"
	imageEnv  = "GLOVEBOX_TEST_IMAGE" // a Debian with Python
)

// testHold is short, so that tests need not wait long for a box without a holder.
const testHold = 10 * time.Second

var (
	gvisorHarness = harness("gvisor", "gvisor", false)
	runcHarness   = harness("runc", "", false)

	gvisorDirect = harness("gvisor-direct", "gvisor", true)
	runcDirect   = harness("runc-direct", "", true)
)

func TestMain(m *testing.M) {
	actAsOther()
	drivertest.Main(m, gvisorHarness, runcHarness, gvisorDirect, runcDirect)
}

// need skips a test for which there is no cluster, unless it is required.
func need(t testing.TB) {
	t.Helper()
	if os.Getenv(configEnv) != "" {
		return
	}
	if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "kubernetes") {
		t.Fatalf("kubernetes is required, and %s is not set: run this by test/kubernetes.sh", configEnv)
	}
	t.Skipf("%s is not set: run this by test/kubernetes.sh", configEnv)
}

// closeLater closes a driver at the end of a test, after its boxes were destroyed.
func closeLater(t testing.TB, d driver.Driver) {
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestGVisor(t *testing.T) {
	need(t)
	drivertest.Run(t, gvisorHarness)
}

func TestRunc(t *testing.T) {
	need(t)
	drivertest.Run(t, runcHarness)
}

// TestGVisorDirect and TestRuncDirect have the server connect to the addresses of Pods.
func TestGVisorDirect(t *testing.T) {
	need(t)
	drivertest.Run(t, gvisorDirect)
}

func TestRuncDirect(t *testing.T) {
	need(t)
	drivertest.Run(t, runcDirect)
}

func BenchmarkKubernetes(b *testing.B) {
	need(b)
	drivertest.Benchmark(b, gvisorHarness)
}

// harness describes the driver over the cluster, with a runtime class and a transport.
func harness(name, class string, direct bool) drivertest.Harness {
	f := &finder{}
	program, err := os.Executable()
	if err != nil {
		panic(err)
	}
	unenforced := []sandbox.ControlName{sandbox.ControlProcesses}
	if class == "" {
		// The default system call filter permits no user namespace.
		unenforced = append(unenforced, sandbox.ControlNetwork)
	}
	return drivertest.Harness{
		Name: name,
		Open: func(dir string) (driver.Driver, error) {
			return kubernetes.New(kubernetes.Options{
				Kubeconfig: os.Getenv(configEnv), RuntimeClass: class, AllowContainer: class == "",
				GuestImage: os.Getenv(guestEnv), StateDir: dir, Hold: testHold, Network: program, Direct: direct,
			})
		},
		Spec: func() *driver.Spec {
			limits := sandbox.DefaultLimits()
			limits.MemoryBytes = 5 << 29 // which files count among, of which the suite writes a large one
			return &driver.Spec{
				ID: sandbox.NewID(), Image: os.Getenv(imageEnv), Hostname: "sandbox", Limits: limits, Network: sandbox.NetworkNone,
				AllowUnenforced: unenforced,
			}
		},
		Refused: map[string]func(*driver.Spec){
			"the image host": func(s *driver.Spec) { s.Image = sandbox.ImageHost },
		},
		Leftovers:  f.leftovers,
		Processes:  f.processes,
		OrphanTime: 10 * time.Second,
		Stops:      true,
		Python:     "/usr/bin/python3",
	}
}

// A finder finds what is in the cluster, and on this machine, of boxes.
type finder struct {
	mu   sync.Mutex
	uids map[string]string // of Pods, by the reference of the box
}

// client returns a client of the cluster's Pods, and their namespace.
func client(t testing.TB) (*rest.RESTClient, string) {
	found := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&clientcmd.ClientConfigLoadingRules{ExplicitPath: os.Getenv(configEnv)}, nil)
	config, err := found.ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	namespace, _, err := found.Namespace()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	config.APIPath, config.GroupVersion, config.QPS = "/api", &schema.GroupVersion{Version: "v1"}, -1
	config.TLSClientConfig.NextProtos = []string{"http/1.1"} // where a request can close its connection
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c, namespace
}

func list(t testing.TB, selector string) []corev1.Pod {
	c, namespace := client(t)
	var pods corev1.PodList
	if err := c.Get().Namespace(namespace).Resource("pods").Param("labelSelector", selector).SetHeader("Connection", "close").Do(context.Background()).Into(&pods); err != nil {
		t.Fatal(err)
	}
	return pods.Items
}

// processes finds a box's processes by their control group, whose name has the UID of
// the Pod, and the process of its network.
func (f *finder) processes(t testing.TB, _, ref string) []int {
	f.mu.Lock()
	uid := f.uids[ref]
	f.mu.Unlock()
	if uid == "" {
		for _, pod := range list(t, "glovebox.sandbox="+ref) {
			uid = string(pod.UID)
		}
		if uid == "" {
			return nil
		}
		f.mu.Lock()
		if f.uids == nil {
			f.uids = map[string]string{}
		}
		f.uids[ref] = uid
		f.mu.Unlock()
	}
	return podProcesses(t, uid, ref)
}

// podProcesses leaves the pause container out. It holds the Pod's namespaces, and ends
// with the Pod.
func podProcesses(t testing.TB, uid, ref string) []int {
	t.Helper()
	return drivertest.ContainerProcesses(t, uid, ref, "pause")
}

// leftovers lists what the cluster has of boxes in dir, and what this machine has of
// those that were looked at.
func (f *finder) leftovers(t testing.TB, dir string) []string {
	state, err := os.ReadFile(filepath.Join(dir, kubernetes.Name, "id"))
	if err != nil {
		return nil // nothing was made yet
	}
	var left []string
	for _, pod := range list(t, "glovebox.state="+string(state)) {
		left = append(left, fmt.Sprintf("Pod %s, %s, deleted at %v", pod.Name, pod.Status.Phase, pod.DeletionTimestamp))
	}
	dirs, err := filepath.Glob(filepath.Join(dir, kubernetes.Name, "networks", "*"))
	if err != nil {
		t.Fatal(err)
	}
	left = append(left, dirs...)
	f.mu.Lock()
	defer f.mu.Unlock()
	for ref, uid := range f.uids {
		if pids := podProcesses(t, uid, ref); len(pids) > 0 && !slices.ContainsFunc(list(t, "glovebox.sandbox="+ref), func(corev1.Pod) bool { return true }) {
			left = append(left, fmt.Sprintf("processes %v of Pod %s", pids, ref))
		}
	}
	return left
}
