//go:build linux

package cli

import (
	"os"
	"strings"
	"testing"
)

// engineScripts are those that need no program in a sandbox but Python and a
// shell: the images that engines are tested with have no more.
var engineScripts = []string{"run.txtar", "run_cancel.txtar", "logs.txtar", "mcp.txtar", "shell.txtar"}

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
		t.Skip("GLOVEBOX_TEST_BINARY names no program")
	}
	runScripts(t, engine, binary, engineScripts...)
}
