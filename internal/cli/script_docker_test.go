//go:build linux

package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// engineScripts are those that need no program in a sandbox but Python and a
// shell: the images that engines are tested with have no more.
var engineScripts = []string{"run.txtar", "run_cancel.txtar", "logs.txtar", "mcp.txtar", "shell.txtar", "runner_images.txtar", "workspace_volume.txtar"}

// TestScriptsDocker and TestScriptsPodman run scripts on the engines that
// test/docker.sh started, with the program that GLOVEBOX_TEST_BINARY names.
func TestScriptsDocker(t *testing.T) { runEngineScripts(t, "docker") }
func TestScriptsPodman(t *testing.T) { runEngineScripts(t, "podman") }

func runEngineScripts(t *testing.T, engine string) {
	variable := "GLOVEBOX_TEST_" + strings.ToUpper(engine)
	if os.Getenv(variable) == "" {
		if required(engine) {
			t.Fatalf("GLOVEBOX_REQUIRE has %s, and %s is not set: run this by test/docker.sh", engine, variable)
		}
		t.Skipf("%s is not set: run this by test/docker.sh", variable)
	}
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		if required(engine) {
			t.Fatalf("GLOVEBOX_REQUIRE has %s, and GLOVEBOX_TEST_BINARY names no program: run this by test/docker.sh", engine)
		}
		t.Skip("GLOVEBOX_TEST_BINARY names no program: run this by test/docker.sh")
	}
	runScripts(t, engine, binary, engineScripts...)
}

// profileScripts are those of servers that ran on Docker.
var profileScripts = []string{"profile_automata.txtar", "profile_interpreter.txtar", "profile_code_runner.txtar"}

// TestProfilesDocker runs the scripts of profiles on Docker. No image can be
// pulled, so the one that engines are tested with stands for those that the
// profiles ask for, and for one that is labelled as a runner.
func TestProfilesDocker(t *testing.T) {
	host, binary := os.Getenv("GLOVEBOX_TEST_DOCKER"), os.Getenv("GLOVEBOX_TEST_BINARY")
	if host == "" || binary == "" {
		if required("docker") {
			t.Fatal("GLOVEBOX_REQUIRE has docker, and GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/docker.sh")
		}
		t.Skip("GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/docker.sh")
	}
	docker := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("docker", append([]string{"--host", host}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	const image = "localhost/glovebox-test:python3"
	names := []string{"python:3.12-slim-bookworm", "python:3.12-alpine", "mcp-sandbox-runner-python:latest"}
	docker("tag", image, names[0])
	docker("tag", image, names[1])
	container := docker("create", image, "true")
	docker("commit", "--change", "LABEL sandbox.runner=true", "--change", "LABEL sandbox.language=python", container, names[2])
	docker("rm", container)
	t.Cleanup(func() { docker(append([]string{"rmi"}, names...)...) })
	t.Run("scripts", func(t *testing.T) { runScripts(t, "docker", binary, profileScripts...) })
}

// TestRunnersDocker runs programs in the images that test/runners.sh built of
// ours.
func TestRunnersDocker(t *testing.T) {
	const image = "localhost/glovebox-runner:python"
	host, binary := os.Getenv("GLOVEBOX_TEST_DOCKER"), os.Getenv("GLOVEBOX_TEST_BINARY")
	if host == "" || binary == "" {
		if required("docker") {
			t.Fatal("GLOVEBOX_REQUIRE has docker, and GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/runners.sh")
		}
		t.Skip("GLOVEBOX_TEST_DOCKER or GLOVEBOX_TEST_BINARY is not set: run this by test/runners.sh")
	}
	if err := exec.Command("docker", "--host", host, "image", "inspect", image).Run(); err != nil {
		if required("docker") {
			t.Fatalf("GLOVEBOX_REQUIRE has docker, and %s is not here: run this by test/runners.sh", image)
		}
		t.Skipf("%s is not here: run this by test/runners.sh", image)
	}
	runScripts(t, "docker", binary, "runners_ours.txtar")
}
