//go:build linux && !nogvisor

package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestDocsGvisor runs every block of commands in the documentation that is not
// marked otherwise, on the embedded sandbox.
func TestDocsGvisor(t *testing.T) {
	all := pages(t)
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	runDocs(t, all, binary, "", "GLOVEBOX_DRIVER=gvisor")
}

// TestDocsDocker runs those that are about engines, on the engines that
// test/docker.sh started.
func TestDocsDocker(t *testing.T) {
	all := pages(t)
	docker, podman, binary := os.Getenv("GLOVEBOX_TEST_DOCKER"), os.Getenv("GLOVEBOX_TEST_PODMAN"), os.Getenv("GLOVEBOX_TEST_BINARY")
	if docker == "" || podman == "" || binary == "" {
		if required("docker") {
			t.Fatal("GLOVEBOX_REQUIRE has docker, and the engines or GLOVEBOX_TEST_BINARY are not set: run this by test/docker.sh")
		}
		t.Skip("the engines or GLOVEBOX_TEST_BINARY are not set: run this by test/docker.sh")
	}
	runDocs(t, all, binary, "docker", "DOCKER_HOST="+docker, "CONTAINER_HOST="+podman)
}

// startServers stands before the program in PATH: a server is started in the
// background, on ports that are free, and the block goes on when it serves.
const startServers = `#!/bin/bash
set -u
if [ "${1:-}" != serve ]; then
	exec "$GLOVEBOX_TEST_PROGRAM" "$@"
fi
args=() port=
for arg; do
	[ -z "$port" ] || arg=127.0.0.1:0
	port=
	case $arg in --listen | --e2b-listen) port=yes ;; esac
	args+=("$arg")
done
case " ${args[*]} " in *" --listen "*) ;; *) args+=(--listen 127.0.0.1:0) ;; esac
log=$(mktemp "$TMPDIR/serve.XXXXXX")
"$GLOVEBOX_TEST_PROGRAM" "${args[@]}" >"$log" 2>&1 </dev/null &
pid=$!
echo "$pid" >>"$GLOVEBOX_TEST_SERVERS"
while kill -0 "$pid" 2>/dev/null; do
	if grep -q 'serving MCP at' "$log"; then
		exit 0
	fi
	sleep 0.05
done
cat "$log" >&2
exit 1
`

// runDocs runs the blocks of each page in order, in one directory and home.
func runDocs(t *testing.T, all map[string]string, binary, mark string, env ...string) {
	blocks := 0
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	for name, page := range all {
		var todo []example
		for _, e := range examples(page) {
			if m, ok := e.shell(); ok && m == mark || e.info == "mcp" && mark == "" {
				todo = append(todo, e)
			}
		}
		if len(todo) == 0 {
			continue
		}
		blocks += len(todo)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, sub := range []string{"home/.cursor", "home/.codex", "home/.vscode", "tmp", "work/bin"} {
				if err := os.MkdirAll(filepath.Join(dir, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			work, servers := filepath.Join(dir, "work"), filepath.Join(dir, "servers")
			for file, text := range map[string]string{
				"bin/glovebox": startServers, "script.js": "console.log(6*7)\n",
			} {
				if err := os.WriteFile(filepath.Join(work, file), []byte(text), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			if err := writeCertificate(filepath.Join(work, "cert.pem"), filepath.Join(work, "key.pem")); err != nil {
				t.Fatal(err)
			}
			environ := append([]string{
				"HOME=" + filepath.Join(dir, "home"), "TMPDIR=" + filepath.Join(dir, "tmp"), "LANG=C.UTF-8", "NO_COLOR=1",
				"PATH=" + filepath.Join(work, "bin") + ":/usr/local/bin:/usr/bin:/bin",
				"GLOVEBOX_TEST_PROGRAM=" + binary, "GLOVEBOX_TEST_SERVERS=" + servers,
			}, env...)
			run := func(script string) (string, string, error) {
				var stdout, stderr strings.Builder
				cmd := exec.CommandContext(context.WithoutCancel(t.Context()), "bash", "-euo", "pipefail", "-c", script)
				cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = work, environ, &stdout, &stderr
				cmd.WaitDelay = 10 * time.Second
				err := cmd.Run()
				return stdout.String(), stderr.String(), err
			}
			t.Cleanup(func() { // before the directory is removed
				if _, stderr, err := run(stopServers); err != nil {
					t.Errorf("end the servers: %v\n%s", err, stderr)
				}
			})
			var tools *toolSession
			for _, e := range todo {
				if e.info == "mcp" {
					if tools == nil {
						tools = startTools(t, binary, work, environ)
					}
					tools.check(t, e)
					continue
				}
				stdout, stderr, err := run(e.text)
				if err != nil {
					t.Errorf("%v\n%s\n%s%s", err, e.text, stdout, stderr)
				} else if d := cmp.Diff(e.output, stdout); e.has && d != "" {
					t.Errorf("what it prints (-documented +got):\n%s%s\n%s", e.text, d, stderr)
				}
			}
		})
	}
	if blocks == 0 {
		t.Error("no page has a block that is run")
	}
}

// stopServers ends what startServers started, and waits for it.
const stopServers = `
for pid in $(cat "$GLOVEBOX_TEST_SERVERS" 2>/dev/null); do
	kill -INT "$pid"
	tail --pid="$pid" -f /dev/null
done`
