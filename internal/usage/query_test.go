package usage

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestParseColumns(t *testing.T) {
	got, err := ParseColumns("day, principal,label")
	if diff := cmp.Diff([]Column{ByDay, ByPrincipal, ByLabel}, got); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	for _, wrong := range []string{"", "days", "day,", "day,hour", "day,day", "sandbox,day"} {
		if _, err := ParseColumns(wrong); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestParseTime(t *testing.T) {
	for text, want := range map[string]time.Time{
		"2026-11-26":                time.Date(2026, 11, 26, 0, 0, 0, 0, time.UTC),
		"2026-11-26T12:00:00+02:00": time.Date(2026, 11, 26, 10, 0, 0, 0, time.UTC),
	} {
		if got, err := ParseTime(text); err != nil || !got.Equal(want) {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, wrong := range []string{"", "yesterday", "2026-13-01"} {
		if _, err := ParseTime(wrong); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}

func TestWriteCSV(t *testing.T) {
	var out strings.Builder
	err := WriteCSV(&out, []Row{
		{Start: noon, Principal: "token:a", Workspace: "=1+1", Label: `a,"b`, Amounts: Amounts{Runs: 2, StorageKiBSeconds: 3}},
		{SandboxID: "sbx_1"},
	})
	want := `start,principal,workspace,label,sandbox_id,sandboxes,sandbox_ms,memory_kib_s,cpu_ms,runs,run_ms,sent_bytes,received_bytes,storage_kib_s
2026-11-26T12:00:00Z,token:a,'=1+1,"a,""b",,0,0,0,0,2,0,0,0,3
,,,,sbx_1,0,0,0,0,0,0,0,0,0
`
	if diff := cmp.Diff(want, out.String()); err != nil || diff != "" {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
}
