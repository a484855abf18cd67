package kubernetes_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// registriesEnv names containerd's directory with the mirrors of registries.
const registriesEnv = "GLOVEBOX_TEST_REGISTRIES"

// TestRegistry runs images that the node pulls from a registry: with credentials, and
// under the name of another registry, whose mirror it is.
func TestRegistry(t *testing.T) {
	need(t)
	const user, password = "puller", "for the test"
	r := imagetest.New(t)
	pushed := r.Push(t, "team/tools:1", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t)))
	missing := r.Host + "/team/tools:2"
	r.Fault(func(plain http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if u, p, _ := req.BasicAuth(); u != user || p != password {
				w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"no credentials"}]}`, http.StatusUnauthorized)
				return
			}
			plain.ServeHTTP(w, req)
		})
	})
	open := func(secrets ...string) driver.Driver {
		d, err := kubernetes.New(kubernetes.Options{
			Kubeconfig: os.Getenv(configEnv), RuntimeClass: "gvisor", GuestImage: os.Getenv(guestEnv), StateDir: t.TempDir(), PullSecrets: secrets,
		})
		if err != nil {
			t.Fatal(err)
		}
		closeLater(t, d)
		return d
	}
	specOf := func(image string) *driver.Spec {
		spec := gvisorHarness.Spec()
		spec.Image = image
		return spec
	}
	refused := func(what string, d driver.Driver, image, text string) {
		t.Helper()
		began := time.Now()
		b, err := d.Create(t.Context(), specOf(image))
		if err == nil {
			_ = b.Destroy(t.Context()) // the test fails anyway
			t.Fatalf("%s: Create succeeds", what)
		}
		if sandbox.KindOf(err) != sandbox.NotFound || !strings.Contains(err.Error(), text) || !strings.Contains(sandbox.HintOf(err), "pull_secrets") {
			t.Errorf("%s: %v (hint: %s), want not found, with %q and a hint about pull_secrets", what, err, sandbox.HintOf(err), text)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: the error took %v", what, took)
		}
	}
	works := func(what string, d driver.Driver, image string) {
		t.Helper()
		if out := drivertest.Launch(t, d, specOf(image)).MustSh(t, "echo works"); out != "works\n" {
			t.Errorf("%s: %q", what, out)
		}
	}

	refused("without credentials", open(), pushed, "401")
	kubectl(t, "create", "secret", "docker-registry", "pull", "--docker-server", r.Host, "--docker-username", user, "--docker-password", password)
	defer kubectl(t, "delete", "secret", "pull")
	d := open("pull")
	refused("a tag that is not there", d, missing, "not found")
	works("with credentials", d, pushed)

	// A mirror needs no credentials of the registry that it stands for.
	r.Fault(nil)
	mirrors := filepath.Join(os.Getenv(registriesEnv), "registry.example.com")
	if err := os.Mkdir(mirrors, 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(mirrors)
	hosts := fmt.Sprintf("server = \"https://registry.example.com\"\n\n[host.\"http://%s\"]\n  capabilities = [\"pull\", \"resolve\"]\n", r.Host)
	if err := os.WriteFile(filepath.Join(mirrors, "hosts.toml"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	works("by a mirror", open(), "registry.example.com/team/tools:1")
}
