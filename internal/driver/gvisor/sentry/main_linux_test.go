package sentry

import (
	"maps"
	"slices"
	"testing"
)

func TestKeptFDs(t *testing.T) {
	args := []string{
		"runsc-sandbox", "--root=/x", "--log-fd=3", "boot", "--io-fds=4,5", "--stdio-fds=[6 7 8]",
		"--pass-fd=9:3", "--start-sync-fd=-1", "--fdlimit=100", "--spec-fd=10", "sbx_fd=12",
	}
	got := slices.Sorted(maps.Keys(KeptFDs(args)))
	if want := []int{1, 3, 4, 5, 6, 7, 8, 9, 10}; !slices.Equal(got, want) {
		t.Errorf("KeptFDs(%q) = %v, want %v", args, got, want)
	}
}
