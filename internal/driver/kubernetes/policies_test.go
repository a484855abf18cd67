package kubernetes_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes"
)

// enforce enforces the cluster's NetworkPolicies until the test's end.
func enforce(t *testing.T) {
	t.Helper()
	program := os.Getenv("GLOVEBOX_TEST_POLICIES")
	if program == "" {
		t.Fatal("GLOVEBOX_TEST_POLICIES is not set: run this by test/kubernetes.sh --policies")
	}
	_, node, _ := strings.Cut(os.Getenv("GLOVEBOX_TEST_NODE"), " ")
	var log strings.Builder
	cmd := exec.Command(program, os.Getenv(configEnv), node)
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the program that enforces policies: %v\n%s", err, log.String())
		}
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%q, %v", line, err)
	}
}

// TestPolicies: the doctor sees whether the cluster's network enforces the policy that it
// prints itself. Sandboxes work in a network that does.
func TestPolicies(t *testing.T) {
	need(t)
	image := os.Getenv("GLOVEBOX_TEST_SERVER_IMAGE")
	if image == "" {
		t.Fatal("there is no image of the server: make build, before test/kubernetes.sh")
	}
	opts := kubernetes.Options{Kubeconfig: os.Getenv(configEnv), RuntimeClass: "gvisor", GuestImage: image, StateDir: t.TempDir()}
	checked := func(name string, probe bool) kubernetes.Check {
		t.Helper()
		checks := kubernetes.Doctor(t.Context(), opts, probe)
		i := slices.IndexFunc(checks, func(c kubernetes.Check) bool { return c.Name == name })
		if i < 0 {
			t.Fatalf("no %s among %+v", name, checks)
		}
		return checks[i]
	}
	manifest := checked("network policy", false).Manifest
	if manifest == "" {
		t.Fatal("the doctor prints no policy")
	}
	apply := exec.Command("kubectl", "apply", "-f", "-")
	apply.Stdin = strings.NewReader(manifest)
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	defer kubectl(t, "delete", "networkpolicy", "no-network")

	// Runc's guest cannot leave the Pod's network.
	keeps := launch(t, runcHarness)
	service := kubectl(t, "--namespace", "default", "get", "service", "kubernetes", "--output", "jsonpath={.spec.clusterIP}")
	dials := func() bool {
		t.Helper()
		program := fmt.Sprintf("import socket; s = socket.socket(); s.settimeout(3); print(s.connect_ex((%q, 443)) == 0)", service)
		return keeps.MustSh(t, "python3 -c '"+program+"'") == "True\n"
	}
	if c := checked("policy enforcement", true); c.OK || !strings.Contains(c.Detail, "reached another one and the API server") {
		t.Errorf("without enforcement: %+v", c)
	}
	if !dials() {
		t.Error("without enforcement, a sandbox with the Pod's network does not reach the API server")
	}
	enforce(t)
	if c := checked("policy enforcement", true); !c.OK || !strings.Contains(c.Detail, "reached neither another one nor the API server") {
		t.Errorf("with enforcement: %+v", c)
	}
	if dials() {
		t.Error("with enforcement, a sandbox with the Pod's network reaches the API server")
	}
	for _, h := range []drivertest.Harness{gvisorHarness, gvisorDirect, runcHarness} {
		if out := launch(t, h).MustSh(t, "echo works"); out != "works\n" {
			t.Errorf("%s: %q", h.Name, out)
		}
	}
}

// launch starts a box of a driver, both of which end with the test.
func launch(t *testing.T, h drivertest.Harness) *drivertest.Box {
	t.Helper()
	d, err := h.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	closeLater(t, d)
	return drivertest.Launch(t, d, h.Spec())
}
