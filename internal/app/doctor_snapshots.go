package app

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkSnapshots reports the snapshots, and the builds that can read them. There is
// nothing to report if there are none.
func (s *System) checkSnapshots(ctx context.Context) []Check {
	c := Check{Name: "snapshots", Status: CheckOK}
	states, err := s.store.SnapshotStates(ctx)
	if err != nil {
		return []Check{failed(c.Name, err)}
	}
	kept, _, err := s.kept()
	if err != nil {
		return []Check{failed(c.Name, err)}
	}
	counts := map[sandbox.SnapshotState]int{}
	var bytes int64
	var oldest time.Time
	var of, missing []string
	for _, st := range states {
		counts[st.State] += st.Count
		bytes += st.Bytes
		if oldest.IsZero() || st.Oldest.Before(oldest) {
			oldest = st.Oldest
		}
		if st.State != sandbox.SnapshotKept || st.Build == "" {
			continue
		}
		build := st.Build[:min(12, len(st.Build))]
		of = append(of, fmt.Sprintf("%d of build %s", st.Count, build))
		if !slices.ContainsFunc(kept, func(b driver.Build) bool { return b.Hash == st.Build }) {
			missing = append(missing, build)
		}
	}
	if len(states) == 0 {
		return nil
	}
	c.Detail = fmt.Sprintf("%d with %s, the oldest for %v", counts[sandbox.SnapshotKept], sandbox.FormatBytes(bytes), time.Since(oldest).Round(time.Minute))
	if len(of) > 0 {
		c.Detail += ": " + strings.Join(of, ", ")
	}
	if n := counts[sandbox.SnapshotMaking]; n > 0 {
		c.Detail += fmt.Sprintf("; %d being made", n)
	}
	if n := counts[sandbox.SnapshotLost]; n > 0 {
		c.Status = CheckWarning
		c.Detail += fmt.Sprintf("; the files of %d are gone", n)
		c.Fix = "glovebox snapshot ls shows them as lost, and glovebox snapshot rm removes them"
	}
	if len(missing) > 0 {
		c.Status = CheckWarning
		c.Detail += "; these builds are not kept, so their snapshots cannot be used: " + strings.Join(missing, ", ")
		c.Fix = strings.TrimPrefix(c.Fix+"\nrun the build that took them, or remove them with glovebox snapshot rm", "\n")
	}
	return []Check{c}
}
