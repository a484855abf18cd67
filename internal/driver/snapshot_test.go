package driver

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A keeper is a driver that keeps snapshots as its features declare.
type keeper struct {
	Driver
	SnapshotKeeper
	features Features
}

func (k keeper) Info() Info { return Info{Features: k.features} }

// TestNoMemory: a driver that keeps files only refuses memory with a hint to ask for
// files, which other drivers do not have.
func TestNoMemory(t *testing.T) {
	for _, test := range []struct {
		what     string
		features Features
		want     error
	}{
		{"memory", Features{Snapshot: true}, nil},
		{"memory and files", Features{Snapshot: true, DiskSnapshot: true}, nil},
		{"files", Features{DiskSnapshot: true}, filesOnly()},
		{"nothing", Features{}, keepsNone()},
	} {
		err := NoMemory(keeper{features: test.features})
		if (err == nil) != (test.want == nil) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
			continue
		}
		if err != nil && (err.Error() != test.want.Error() || sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) != sandbox.HintOf(test.want)) {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
	}
}

// TestCanRollback: each driver that cannot says what its callers can do.
func TestCanRollback(t *testing.T) {
	for _, test := range []struct {
		what     string
		features Features
		want     error
	}{
		{"both", Features{Save: true, Snapshot: true, Rollback: true}, nil},
		{"memory", Features{Snapshot: true}, noWayBack()},
		{"files", Features{DiskSnapshot: true}, filesOnly()},
		{"nothing", Features{}, keepsNone()},
	} {
		err := CanRollback(keeper{features: test.features})
		if (err == nil) != (test.want == nil) || err != nil && (err.Error() != test.want.Error() || sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "") {
			t.Errorf("%s: %v, want %v", test.what, err, test.want)
		}
	}
}
