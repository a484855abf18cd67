//go:build linux && !nogvisor

package cli

import (
	"bufio"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
)

// TestE2BSDKs has E2B's own SDKs, as they come from npm, use each of their
// methods against glovebox serve. They are the witness, which is not ours, that
// it speaks their protocol.
func TestE2BSDKs(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	env := []string{"GLOVEBOX_DRIVER=gvisor"}
	for program, setting := range map[string]string{"git": "E2B_TEST_GIT=no", "python3": "E2B_TEST_CONTEXTS=no"} {
		if _, err := os.Stat("/usr/bin/" + program); err != nil {
			env = append(env, setting)
		}
	}
	testE2BSDKs(t, binary, env)
}

// TestE2BSDKsDocker does so where sandboxes are containers.
func TestE2BSDKsDocker(t *testing.T) {
	docker, binary := os.Getenv("GLOVEBOX_TEST_DOCKER"), os.Getenv("GLOVEBOX_TEST_BINARY")
	if docker == "" || binary == "" {
		if required("docker") {
			t.Fatal("GLOVEBOX_REQUIRE has docker, and GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/docker.sh")
		}
		t.Skip("GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/docker.sh")
	}
	// Containers are not paused, and their image has no git. Templates are not built
	// by a container engine.
	env := []string{"GLOVEBOX_DRIVER=docker", "DOCKER_HOST=" + docker, "E2B_TEST_PAUSE=no", "E2B_TEST_GIT=no", "E2B_TEST_TEMPLATES=no"}
	// The disk of a container is memory, which has attributes since Linux 6.6.
	file := filepath.Join("/dev/shm", "glovebox-"+rand.Text())
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	if err := syscall.Setxattr(file, "user.test", nil, 0); errors.Is(err, syscall.EOPNOTSUPP) {
		env = append(env, "E2B_TEST_METADATA=no")
	}
	testE2BSDKs(t, binary, env)
}

func testE2BSDKs(t *testing.T, binary string, env []string) {
	env = append(append(os.Environ(), "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=", "GLOVEBOX_E2B_PUBLIC_PORTS=true"), env...)
	// All of them, but for what needs a program that is not here.
	if passed, out := testE2BClients(t, "e2b-sdk", "node", "@e2b/code-interpreter", binary, env, "e2b.test.mjs"); passed < 17 {
		t.Errorf("%d tests passed:\n%s", passed, out)
	}
}

// TestE2BSnapshots has E2B's SDK take snapshots, make sandboxes of them, and fork.
func TestE2BSnapshots(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=")
	want := 4
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		env, want = append(env, "E2B_TEST_CONTEXTS=no"), 3
	}
	if passed, out := testE2BClients(t, "e2b-sdk", "node", "@e2b/code-interpreter", binary, env, "snapshots.test.mjs"); passed != want {
		t.Errorf("%d tests passed, and %d should:\n%s", passed, want, out)
	}
}

// TestE2BTemplates has E2B's SDK build templates, and make sandboxes of them.
func TestE2BTemplates(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	archive, settings := filepath.Join(t.TempDir(), "saved.tar"), filepath.Join(t.TempDir(), "config.yaml")
	// The SDK runs every command by /bin/bash.
	bash := imagetest.Layer(t, imagetest.File{Name: "bin/bash", Content: "#!/bin/sh\nexec /bin/sh \"$@\"\n", Mode: 0o755})
	imagetest.Save(t, archive, "base:1", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t), bash))
	if err := os.WriteFile(settings, []byte("sandbox: {maximum: {processes: 200}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "GLOVEBOX_CONFIG="+settings,
		"NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=")
	load := exec.CommandContext(t.Context(), binary, "images", "load", archive)
	load.Env = env
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("images load: %v\n%s", err, out)
	}
	if passed, out := testE2BClients(t, "e2b-sdk", "node", "@e2b/code-interpreter", binary, append(env, "E2B_TEST_IMAGE=base:1"), "templates.test.mjs"); passed != 3 {
		t.Errorf("%d tests passed, and 3 should:\n%s", passed, out)
	}
	// Nothing is left but the image that was loaded.
	list := exec.CommandContext(t.Context(), binary, "images", "list")
	list.Env = env
	if out, err := list.CombinedOutput(); err != nil || strings.Contains(string(out), "template.glovebox/") {
		t.Errorf("images of deleted templates are left: %v\n%s", err, out)
	}
}

// TestE2BOldest has the oldest SDK of version 2 use a sandbox.
func TestE2BOldest(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	const domain = "e2b.test"
	cert, key := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
	if err := writeCertificate(cert, key, "*."+domain); err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "E2B_DEBUG=",
		"GLOVEBOX_E2B_DOMAIN="+domain, "GLOVEBOX_TLS_CERT="+cert, "GLOVEBOX_TLS_KEY="+key, "GLOVEBOX_E2B_LISTEN=127.0.0.1:"+port,
		"E2B_DOMAIN="+domain, "E2B_TEST_PORT="+port, "NODE_EXTRA_CA_CERTS="+cert)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		env = append(env, "E2B_TEST_CONTEXTS=no")
	}
	if passed, out := testE2BClients(t, "e2b-sdk", "node", "e2b-oldest", binary, env, "oldest.test.mjs"); passed != 2 {
		t.Errorf("%d tests passed, and 2 should:\n%s", passed, out)
	}
}

// TestE2BContexts has E2B's SDK fill a sandbox with contexts: 100 where there is
// memory for them, and a few where there is not.
func TestE2BContexts(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	for name, c := range map[string]struct{ settings, many string }{
		"many":   {"sandbox: {default: {memory: 2GiB}, maximum: {memory: 2GiB}}\n", "yes"},
		"memory": {"sandbox: {default: {memory: 192MiB}}\n", "no"},
	} {
		t.Run(name, func(t *testing.T) {
			settings := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(settings, []byte(c.settings), 0o600); err != nil {
				t.Fatal(err)
			}
			env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "GLOVEBOX_CONFIG="+settings,
				"NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=", "E2B_TEST_MANY="+c.many)
			passed, out := testE2BClients(t, "e2b-sdk", "node", "@e2b/code-interpreter", binary, env, "contexts.test.mjs")
			if passed != 1 {
				t.Errorf("%d tests passed, and 1 should", passed)
			}
			t.Logf("%s", out)
		})
	}
}

// TestE2BFrameworks has agent frameworks, as they come from npm, use their own
// clients of E2B's sandboxes against glovebox serve, with models that follow a
// script.
func TestE2BFrameworks(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+t.TempDir(), "NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=")
	want := 5
	// A program that calls the host needs Node in the sandbox, whose image is this
	// machine's own files.
	if _, err := os.Stat("/usr/bin/node"); err != nil {
		if _, err := os.Stat("/usr/local/bin/node"); err != nil {
			env = append(env, "E2B_TEST_NODE=no")
			want--
		}
	}
	passed, out := testE2BClients(t, "frameworks", "frameworks", "deepagents", binary, env,
		"computesdk.test.mjs", "deepagents.test.mjs", "mastra.test.mjs", "openai-agents.test.mjs")
	if passed != want {
		t.Errorf("%d tests passed, and %d should:\n%s", passed, want, out)
	}
}

// testE2BClients runs files of tests in a directory below test, where the package
// of npm's must be, against a server of its own. It returns how many tests
// passed.
func testE2BClients(t *testing.T, component, dir, pkg, binary string, env []string, files ...string) (passed int, out []byte) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", "..", "test"))
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(root, "node", "node_modules", ".bin", "node")
	for _, file := range []string{node, filepath.Join(root, dir, "node_modules", pkg)} {
		if _, err := os.Stat(file); err != nil {
			if required(component) {
				t.Fatalf("GLOVEBOX_REQUIRE has %s, which is not installed: %v; make clients", component, err)
			}
			t.Skipf("%s is not installed: make clients", component)
		}
	}
	url := serveE2B(t, binary, env)
	cmd := exec.CommandContext(t.Context(), node, append([]string{"--test", "--test-force-exit", "--test-reporter=spec"}, files...)...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(env, "E2B_API_URL="+url, "E2B_SANDBOX_URL="+url, "E2B_VOLUME_API_URL="+url,
		"E2B_API_KEY="+apiKey(t, binary, env, "alice"), "E2B_OTHER_API_KEY="+apiKey(t, binary, env, "mallory"))
	cmd.WaitDelay = 10 * time.Second
	out, err = cmd.CombinedOutput()
	m := regexp.MustCompile(`(?m)^ℹ pass (\d+)$`).FindSubmatch(out)
	if err != nil || m == nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if passed, err = strconv.Atoi(string(m[1])); err != nil {
		t.Fatal(err)
	}
	return passed, out
}

// apiKey makes a token, as a key that an SDK of any version takes.
func apiKey(t *testing.T, binary string, env []string, name string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, "token", "create", name, "--e2b")
	cmd.Env = env
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("token create: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// serveE2B starts glovebox serve and returns where it serves E2B's protocol. At
// the end of the test it ends, without an error and without sandboxes.
func serveE2B(t *testing.T, binary string, env []string) (url string) {
	t.Helper()
	cmd := exec.Command(binary, "serve", "--listen", "127.0.0.1:0")
	if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "GLOVEBOX_E2B_LISTEN=") }) {
		cmd.Args = append(cmd.Args, "--e2b-listen", "127.0.0.1:0")
	}
	cmd.Env = env
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	address := make(chan string, 1)
	read := make(chan struct{})
	go func() {
		defer close(read)
		defer close(address)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if _, at, ok := strings.Cut(lines.Text(), "serving E2B's SDKs at "); ok {
				address <- at
			}
		}
	}()
	t.Cleanup(func() {
		ps := exec.Command(binary, "ps", "--json")
		ps.Env = env
		if out, err := ps.CombinedOutput(); err != nil || strings.Contains(string(out), `"running"`) {
			t.Errorf("the SDKs' tests left sandboxes: %v\n%s", err, out)
		}
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		<-read
		if err := cmd.Wait(); err != nil {
			t.Errorf("glovebox serve: %v", err)
		}
	})
	url, ok := <-address
	if !ok {
		t.Fatal("glovebox serve does not serve E2B's protocol")
	}
	return url
}
