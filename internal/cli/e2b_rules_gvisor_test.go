//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestE2BRules has E2B's SDK set headers in the requests of a sandbox,
// before and after a restart of the server. Nothing on the disk has their values; the
// audit log is there, too.
func TestE2BRules(t *testing.T) {
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	if _, err := os.Stat("/usr/bin/curl"); err != nil {
		t.Skip("the programs in the sandbox need curl")
	}
	s := newAPIServer(t)
	const value, operators = "only-the-host-may-know", "the-secret-of-the-operator"
	dir := t.TempDir()
	state, config, keep, key := filepath.Join(dir, "state"), filepath.Join(dir, "config.yaml"), filepath.Join(dir, "sandbox"), filepath.Join(dir, "key")
	api := apiName + ":" + s.port
	text := "audit: {enabled: true}\nnetwork:\n  resolver: " + s.resolver + "\n  allow: [\"" + api + "\", \"" + apiName + ":80\", \"" + s.addr.String() + "\"]\n" +
		"secrets:\n  - {name: OPERATORS, file: " + key + ", hosts: [\"" + api + "\"], headers: [X-Key]}\n"
	for path, content := range map[string]string{config: text, key: operators} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	env := append(os.Environ(), "GLOVEBOX_DRIVER=gvisor", "GLOVEBOX_STATE_DIR="+state, "GLOVEBOX_CONFIG="+config, "GLOVEBOX_LOG_LEVEL=debug",
		"NO_COLOR=1", "E2B_DEBUG=", "E2B_DOMAIN=", "SSL_CERT_FILE="+s.roots,
		"E2B_TEST_API="+api, "E2B_TEST_ADDRESS="+s.addr.String(), "E2B_TEST_RULE="+value, "E2B_TEST_KEEP="+keep)
	ok := t.Run("rules", func(t *testing.T) {
		if passed, out := testE2BClients(t, "e2b-sdk", "node", "e2b", binary, env, "rules.test.mjs"); passed != 1 {
			t.Errorf("%d tests passed:\n%s", passed, out)
		}
		searchFor(t, state, value)
	})
	id, err := os.ReadFile(keep)
	if !ok || err != nil {
		t.Fatal(err)
	}
	revoke := exec.CommandContext(t.Context(), binary, "token", "revoke", "alice", "mallory") // testE2BClients makes them again
	revoke.Env = env
	if out, err := revoke.CombinedOutput(); err != nil {
		t.Fatalf("token revoke: %v\n%s", err, out)
	}
	t.Run("restart", func(t *testing.T) {
		env := append(env, "E2B_TEST_SANDBOX="+string(id))
		if passed, out := testE2BClients(t, "e2b-sdk", "node", "e2b", binary, env, "rules.test.mjs"); passed != 1 {
			t.Errorf("%d tests passed:\n%s", passed, out)
		}
		searchFor(t, state, value)
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	want := map[string]string{
		"first": "Bearer " + value, "second": "Bearer next-" + value, "third": "mine", "restarted": "Bearer " + value,
	}
	if diff := cmp.Diff(want, s.authorized); diff != "" {
		t.Errorf("the server saw other headers: -want +got\n%s", diff)
	}
	if s.seen["first"] != operators {
		t.Errorf("the operator's secret: %q", s.seen["first"])
	}
}

// searchFor reports the files below dir that have text.
func searchFor(t *testing.T, dir, text string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			t.Errorf("%s has the value", strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
