//go:build linux && !nogvisor

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// composeProject is a project of two services with an image that is built. Its first
// image is made of busybox, so that no registry is needed.
const composeProject = `
set -e
mkdir -p /tmp/project/root/bin && cd /tmp/project
cp "$(command -v busybox)" root/bin/
for name in sh mkdir echo sleep wget httpd; do ln -s busybox root/bin/$name; done
tar -C root -c . | sudo docker import - base >/dev/null
cat >Dockerfile <<'END'
FROM base
RUN mkdir /www && echo built-in-the-sandbox >/www/index.html
CMD exec httpd -f -p 80 -h /www
END
cat >docker-compose.yml <<'END'
version: "3"
services:
  web:
    build: .
    ports: ["8080:80"]
  client:
    image: base
    depends_on: [web]
    command: sh -c 'until wget -q -O - http://web/; do sleep 0.1; done'
END
sudo env DOCKER_BUILDKIT=0 docker-compose up --build -d >up.log 2>&1 || { cat up.log; exit 1; }
until sudo docker-compose logs client | grep -q built-in-the-sandbox; do sleep 0.2; done
echo "by name: $(sudo docker-compose logs --no-color client | grep -o built-in-the-sandbox)"
echo "by port: $(wget -q -O - http://127.0.0.1:8080/)"
sudo docker run --rm --network none base echo "run alone"
sudo docker-compose down >/dev/null 2>&1
sudo docker ps --quiet
`

// TestGvisorDocker runs dockerd in a sandbox, as docs/guides/containers.md says, with a
// project of docker-compose.
func TestGvisorDocker(t *testing.T) {
	for _, name := range []string{"dockerd", "containerd", "runc", "docker", "docker-compose", "busybox", "xtables-legacy-multi"} {
		if _, err := os.Stat("/usr/sbin/" + name); err == nil {
			continue
		}
		if _, err := os.Stat("/usr/bin/" + name); err != nil {
			if strings.Contains(","+os.Getenv("GLOVEBOX_REQUIRE")+",", ",docker,") {
				t.Fatalf("GLOVEBOX_REQUIRE has docker, and there is no %s", name)
			}
			t.Skipf("there is no %s", name)
		}
	}
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	_, rest, _ := strings.Cut(pages(t)["docs/guides/containers.md"], "TestGvisorDocker runs it\n")
	block, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("the guide has no such block")
	}
	dir := t.TempDir()
	config, script := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "script.sh")
	for name, text := range map[string]string{config: "sandbox:\n  containers: true\n", script: block + composeProject} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := func(config string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), binary, append([]string{"run", "--driver", "gvisor", "--state-dir", t.TempDir(), "--config", config}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("glovebox run: %v\n%s", err, out)
		}
		return string(out)
	}
	got := run(config, "--timeout", "4m", "--memory", "1g", "-l", "bash", script)
	if want := "by name: built-in-the-sandbox\nby port: built-in-the-sandbox\nrun alone\n"; got != want {
		t.Errorf("the sandbox wrote %q, want %q", got, want)
	}
}
