package release

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// cmdlets are what install.ps1 may call: each is in Windows PowerShell 5.1 and
// in PowerShell 7.
var cmdlets = []string{
	"Copy-Item", "Expand-Archive", "Get-Command", "Get-Content", "Get-FileHash", "Invoke-WebRequest", "Join-Path", "Move-Item",
	"New-Item", "Out-Null", "Remove-Item", "Set-StrictMode", "Test-Path", "Write-Host",
	"Install-Glovebox", "minisign", // a function of its own, and the program
}

// script is what test/node/powershell.mjs says of a script.
type script struct{ Faults, Commands, Strings []string }

// parse has tree-sitter's grammar of PowerShell read a script, without which
// the test is skipped, or fails if GLOVEBOX_REQUIRE names powershell.
func parse(t *testing.T, text []byte) script {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", "..", "test", "node"))
	if err != nil {
		t.Fatal(err)
	}
	node := filepath.Join(dir, "node_modules", ".bin", "node")
	for _, need := range []string{node, filepath.Join(dir, "node_modules", "tree-sitter-powershell"), filepath.Join(dir, "node_modules", "web-tree-sitter")} {
		if _, err := os.Stat(need); err != nil {
			if slices.Contains(strings.Split(os.Getenv("GLOVEBOX_REQUIRE"), ","), "powershell") {
				t.Fatalf("powershell is required: %v; run npm ci in test/node", err)
			}
			t.Skip("the grammar of PowerShell is not installed: run npm ci in test/node")
		}
	}
	path := filepath.Join(t.TempDir(), "script.ps1")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), node, filepath.Join(dir, "powershell.mjs"), path)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	var s script
	if err := json.Unmarshal(out, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPowerShell reads install.ps1, as there is no PowerShell to run it: it
// parses, calls what there is, and names files as the release does.
func TestPowerShell(t *testing.T) {
	r := made(t)
	got := files(t, r.Out)
	text := got["install.ps1"]
	s := parse(t, text)
	if len(s.Faults) > 0 {
		t.Errorf("it does not parse: %q", s.Faults)
	}
	for _, name := range s.Commands {
		if !slices.Contains(cmdlets, name) {
			t.Errorf("it calls %s", name)
		}
	}
	if broken := parse(t, bytes.Replace(text, []byte("finally {"), nil, 1)); len(broken.Faults) == 0 {
		t.Error("without a brace it parses as well")
	}

	says := func(text string) bool {
		return slices.ContainsFunc(s.Strings, func(s string) bool { return strings.Trim(s, `'"`) == text })
	}
	for _, name := range []string{ChecksumsName, ChecksumsName + ".minisig"} {
		if _, ok := got[name]; !ok || !says(name) && !says("$Url/"+name) {
			t.Errorf("it does not ask for %s, or that is not in the release", name)
		}
	}
	for _, p := range []Platform{{"windows", "amd64"}, {"windows", "arm64"}} {
		if !says(p.Arch) || !says(strings.Replace(p.archive(), p.Arch, "$arch", 1)) {
			t.Errorf("it does not ask for %s", p.archive())
		}
	}
	archive := got[Platform{"windows", "amd64"}.archive()]
	z, err := zip.NewReader(bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		t.Fatal(err)
	}
	const unpacked = `unpacked\`
	if !slices.ContainsFunc(z.File, func(f *zip.File) bool { return says(unpacked + f.Name) }) {
		t.Error("the program that it starts is not in the archive")
	}
}
