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

// checkSaved reports the sandboxes that hibernate on disk, and the builds that can wake
// them. There is nothing to report if there are neither.
func (s *System) checkSaved(ctx context.Context) []Check {
	c := Check{Name: "hibernated sandboxes", Status: CheckOK}
	states, err := s.store.SavedStates(ctx)
	if err != nil {
		return []Check{failed(c.Name, err)}
	}
	kept, shared, err := s.kept()
	if err != nil {
		return []Check{failed(c.Name, err)}
	}
	if len(states) == 0 && len(kept) == 0 {
		return nil
	}
	var count int
	var bytes int64
	var oldest time.Time
	var of, missing []string
	for _, st := range states {
		count, bytes = count+st.Count, bytes+st.Bytes
		if oldest.IsZero() || st.Oldest.Before(oldest) {
			oldest = st.Oldest
		}
		build := st.Build[:min(12, len(st.Build))]
		of = append(of, fmt.Sprintf("%d of build %s", st.Count, build))
		if !slices.ContainsFunc(kept, func(b driver.Build) bool { return b.Hash == st.Build }) {
			missing = append(missing, build)
		}
	}
	c.Detail = fmt.Sprintf("%d on disk with %s", count, sandbox.FormatBytes(bytes))
	if count > 0 {
		c.Detail += fmt.Sprintf(", the oldest for %v: %s", time.Since(oldest).Round(time.Minute), strings.Join(of, ", "))
	}
	c.Detail += fmt.Sprintf("; %d kept builds with %s", len(kept), sandbox.FormatBytes(sizeOf(kept)))
	if shared > 0 {
		c.Detail += fmt.Sprintf("; %s of memory that several share", sandbox.FormatBytes(shared))
	}
	if len(missing) > 0 {
		c.Status = CheckWarning
		c.Detail += "; these are not kept, so their sandboxes may not wake: " + strings.Join(missing, ", ")
		c.Fix = "run the build that saved them, which can wake them, or stop them"
	}
	return []Check{c}
}

// kept returns what the driver keeps for saved sandboxes: builds, and bytes of snapshots
// that they share.
func (s *System) kept() (builds []driver.Build, shared int64, err error) {
	k, ok := s.choice.Driver.(driver.BuildKeeper)
	if !ok {
		return nil, 0, nil
	}
	if builds, err = k.Builds(); err == nil {
		shared, err = k.Bases()
	}
	return builds, shared, err
}

// keptBytes returns their size.
func (s *System) keptBytes() (int64, error) {
	builds, shared, err := s.kept()
	return sizeOf(builds) + shared, err
}

func sizeOf(builds []driver.Build) (sum int64) {
	for _, b := range builds {
		sum += b.Bytes
	}
	return sum
}
