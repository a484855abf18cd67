package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/probe"
)

// bareCluster is an API server of a cluster that has a namespace, and nothing else
// that sandboxes need. It makes no Pods.
func bareCluster(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch r.Method + " " + r.URL.Path {
	case "GET /version":
		_, _ = io.WriteString(w, `{"gitVersion": "v1.34.4"}`)
	case "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		_, _ = io.WriteString(w, `{"status": {"allowed": false}}`)
	case "POST /apis/authentication.k8s.io/v1/selfsubjectreviews":
		_, _ = io.WriteString(w, `{"status": {"userInfo": {"username": "alice"}}}`)
	case "GET /apis/networking.k8s.io/v1/namespaces/boxes/networkpolicies":
		_, _ = io.WriteString(w, `{"items": []}`)
	default:
		code, reason := http.StatusForbidden, "Forbidden"
		if strings.Contains(r.URL.Path, "runtimeclasses") {
			code, reason = http.StatusNotFound, "NotFound"
		}
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": %d, "reason": %q, "message": "no"}`, code, reason)
	}
}

// TestDoctorPrintsManifests has a cluster without the objects that sandboxes need.
// With --fix, doctor prints them as one stream of YAML documents.
func TestDoctorPrintsManifests(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(bareCluster))
	t.Cleanup(server.Close)
	dir := t.TempDir()
	kubeconfig, settings := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "config.yaml")
	for file, text := range map[string]string{
		kubeconfig: fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "clusters": [{"name": "c", "cluster": {"server": %q}}],
"users": [{"name": "c", "user": {}}], "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c", "namespace": "boxes"}}]}`, server.URL),
		settings: fmt.Sprintf("driver: kubernetes\nkubernetes: {kubeconfig: %q, runtime_class: gvisor, guest_image: example.com/glovebox:1}\n", kubeconfig),
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := map[string]string{"GLOVEBOX_CONFIG": settings, "GLOVEBOX_STATE_DIR": filepath.Join(dir, "state"), "NO_COLOR": "1"}
	doctor := func(args ...string) string {
		var out bytes.Buffer
		p := &program{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: io.Discard, Getenv: func(name string) string { return env[name] }}}
		if status := run(t.Context(), append([]string{"doctor"}, args...), p); status != 1 {
			t.Errorf("doctor %q: status %d, want 1\n%s", args, status, out.String())
		}
		return out.String()
	}
	text := doctor("--fix")
	for _, want := range []string{
		"\nFAILED   permissions: in namespace boxes the server may not ",
		"\n---\n# permissions: apply this to the cluster with kubectl apply -f FILE\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n",
		"\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n", "  name: \"alice\"\n",
		"\n---\n# runtime class: ", "\nhandler: runsc\n",
		"\n---\n# network policy: ", "\nkind: NetworkPolicy\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("doctor --fix does not print %q:\n%s", want, text)
		}
	}
	if text := doctor(); strings.Contains(text, "---") || strings.Contains(text, "apiVersion") {
		t.Errorf("doctor prints objects without --fix:\n%s", text)
	}
	var checks []struct{ Name, Manifest string }
	if err := json.Unmarshal([]byte(doctor("--json")), &checks); err != nil {
		t.Fatal(err)
	}
	var with []string
	for _, c := range checks {
		if c.Manifest != "" {
			with = append(with, c.Name)
		}
	}
	if got := strings.Join(with, ", "); got != "permissions, runtime class, network policy" {
		t.Errorf("the findings with a manifest are %q", got)
	}
}

// TestProbeNetwork: the program of the Pods of doctor --probe ends with its result. Nothing
// listens at port 0.
func TestProbeNetwork(t *testing.T) {
	var out bytes.Buffer
	p := &program{Streams: Streams{In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }}}
	want := int(probe.Tried | probe.NoAPIServer)
	if status := run(t.Context(), []string{probe.Command, "127.0.0.1:0"}, p); status != want || out.Len() > 0 {
		t.Errorf("status %d, want %d\n%s", status, want, out.String())
	}
}
