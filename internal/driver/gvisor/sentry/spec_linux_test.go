package sentry

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func TestSandboxArgs(t *testing.T) {
	memory, quota, period := int64(96<<20), int64(250_000), uint64(100_000) // 2.5 CPUs
	data, err := json.Marshal(&specs.Spec{Linux: &specs.Linux{Resources: &specs.LinuxResources{
		Memory: &specs.LinuxMemory{Limit: &memory},
		CPU:    &specs.LinuxCPU{Quota: &quota, Period: &period},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(data); err != nil {
		t.Fatal(err)
	}
	args := []string{"runsc-sandbox", "--root=/x", "boot", fmt.Sprintf("--spec-fd=%d", f.Fd()), "--total-memory", "999", "sbx"}
	got := sandboxArgs(args, openedSpec(args))
	if i := slices.Index(got, "--total-memory"); got[i+1] != fmt.Sprint(96<<20) {
		t.Errorf("memory in %q is not the limit", got)
	}
	if i := slices.Index(got, "--cpu-num"); i < 0 || got[i+1] != "3" {
		t.Errorf("CPUs in %q are not the limit, rounded up", got)
	}
	if slices.Contains(args, "--cpu-num") {
		t.Error("the caller's arguments were changed")
	}
	// The offset must stay: gVisor reads the file next.
	if at, err := f.Seek(0, 1); err != nil || at != int64(len(data)) {
		t.Errorf("offset is %d, %v; want %d", at, err, len(data))
	}
	for _, bad := range [][]string{
		{"runsc-sandbox", "boot"},
		{"runsc-sandbox", "boot", "--spec-fd=-1"},
		{"runsc-sandbox", "boot", "--spec-fd=99999"},
	} {
		if got := openedSpec(bad); got != nil {
			t.Errorf("openedSpec(%q) = %v, want nil", bad, got)
		}
	}
}
