//go:build linux && !nogvisor

package cli

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A gitServer serves a repository by Git's own program, to those who have a password.
type gitServer struct {
	backend cgi.Handler
	key     string

	mu      sync.Mutex
	refused []string // Authorization headers that were not right
	paths   []string // that were served
}

func (s *gitServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	user, password, _ := r.BasicAuth()
	s.mu.Lock()
	right := user == "agent" && password == s.key
	if right {
		s.paths = append(s.paths, r.URL.Path)
	} else if v := r.Header.Get("Authorization"); v != "" {
		s.refused = append(s.refused, v)
	}
	s.mu.Unlock()
	if !right {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	s.backend.ServeHTTP(w, r)
}

// TestGvisorGit has git of a sandbox clone, fetch and push with a password that the
// sandbox does not have, as docs/guides/git.md says.
func TestGvisorGit(t *testing.T) {
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("there is no git")
	}
	execPath, err := exec.Command(git, "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(execPath)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Skip("there is no git http-backend")
	}
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	root := t.TempDir()
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command(git, args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
		return string(out)
	}
	bare := filepath.Join(root, "project.git")
	run(root, "init", "-q", "--bare", "-b", "main", bare)
	run(root, "clone", "-q", bare, "seed")
	seed := filepath.Join(root, "seed")
	if err := os.WriteFile(filepath.Join(seed, "file"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(seed, "add", "file")
	run(seed, "commit", "-q", "-m", "first")
	run(seed, "push", "-q", "origin", "HEAD:main")

	const key = "correct-horse-battery-staple"
	s := newAPIServer(t)
	server := &gitServer{key: key, backend: cgi.Handler{
		Path: backend, Root: "/git",
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=agent", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}}
	s.git = server
	config := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("network:\n  resolver: %q\n  allow: [%q, %q]\n", s.resolver, apiName+":"+s.port, s.addr)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	state, bin := t.TempDir(), t.TempDir()
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s --driver gvisor --state-dir %s --config %s --log-level debug \"$@\"\n", binary, state, config)
	if err := os.WriteFile(filepath.Join(bin, "glovebox"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", gitBlock(t, s))
	cmd.Env = append(os.Environ(), "SSL_CERT_FILE="+s.roots, "PATH="+bin+":"+os.Getenv("PATH"), "TOKEN="+key)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("glovebox run: %v\n%s\n%s", err, out, &stderr)
	}
	if got := string(out); got != "Add a line\nfirst\n" {
		t.Errorf("the sandbox wrote %q", got)
	}
	if got := run(bare, "show", "fix:file"); got != "one\ntwo\n" {
		t.Errorf("the server has %q", got)
	}
	server.mu.Lock()
	defer server.mu.Unlock()
	if len(server.refused) > 0 {
		t.Errorf("the server refused %q", server.refused)
	}
	for _, want := range []string{"/git/project.git/git-upload-pack", "/git/project.git/git-receive-pack"} {
		if !strings.Contains(strings.Join(server.paths, " ")+" ", want+" ") {
			t.Errorf("the server did not serve %s: %q", want, server.paths)
		}
	}
	if strings.Contains(stderr.String(), key) {
		t.Errorf("the log has the password: %s", &stderr)
	}
	searchFor(t, state, key)
}

// gitBlock returns the commands of the guide, for the test's server.
func gitBlock(t *testing.T, s *apiServer) string {
	t.Helper()
	_, rest, _ := strings.Cut(pages(t)["docs/guides/git.md"], "TestGvisorGit runs it with one of its own\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the guide has no such block")
	}
	host := apiName + ":" + s.port
	for _, r := range [][2]string{
		{"GIT_TOKEN=…", "GIT_TOKEN=$TOKEN"},
		{"--network git.example", "--timeout 4m --network " + host + "," + s.addr.String() + ":" + s.port},
		{"https://git.example/", "https://" + host + "/git/"},
		{"git.example", host},
	} {
		if !strings.Contains(block, r[0]) {
			t.Fatalf("the block has no %q", r[0])
		}
		block = strings.ReplaceAll(block, r[0], r[1])
	}
	return block
}
