package operator

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A gapEngine has the output of one run, of which the bytes of gap were not kept.
type gapEngine struct {
	Engine
	output string
	gap    sandbox.Gap
}

func (e gapEngine) ReadOutput(_ context.Context, _ sandbox.Principal, _ string, stream sandbox.StreamName, offset, limit int64) ([]byte, int64, error) {
	total := int64(len(e.output))
	if stream != e.gap.Stream {
		return nil, 0, nil
	}
	end := total
	if offset < e.gap.From {
		end = e.gap.From
	} else if offset < e.gap.To {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "%w", &e.gap)
	}
	return []byte(e.output[offset:min(end, offset+limit)]), total, nil
}

// TestLogsOfRunWithGap reads the output of a run in progress of which the middle,
// the beginning or the end was not kept.
func TestLogsOfRunWithGap(t *testing.T) {
	db, err := store.Open(t.Context(), store.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sb := store.Sandbox{Principal: sandbox.Local}
	sb.ID, sb.State, sb.Created = sandbox.NewID(), sandbox.Running, time.Now()
	if err := db.InsertSandbox(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	run := store.Run{Principal: sandbox.Local}
	run.ID, run.SandboxID, run.Started = sandbox.NewRunID(), sb.ID, time.Now()
	if err := db.InsertRun(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		from, to int64
		want     string
	}{
		{3, 7, "abc" + sandbox.NotKept(4) + "hij"},
		{0, 7, sandbox.NotKept(7) + "hij"},
		{3, 10, "abc" + sandbox.NotKept(7)},
	} {
		e := gapEngine{output: "abcdefghij", gap: sandbox.Gap{Stream: sandbox.Stderr, From: c.from, To: c.to}}
		var got bytes.Buffer
		err := New(Options{Store: db, Engine: e}).Logs(t.Context(), run.ID, false, func(_ sandbox.StreamName, data []byte) error {
			got.Write(data)
			return nil
		})
		if diff := cmp.Diff(c.want, got.String()); err != nil || diff != "" {
			t.Errorf("gap %d to %d: %v\n%s", c.from, c.to, err, diff)
		}
	}
}
