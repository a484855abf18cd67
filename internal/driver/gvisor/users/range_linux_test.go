package users

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTakenUsers(t *testing.T) {
	etc := t.TempDir()
	for name, text := range map[string]string{
		"passwd": "root:x:0:0::/root:/bin/sh\nodd\nldap:x:2013265920:5::/:/bin/sh\n",
		"group":  "staff:x:50:\n",
		"subuid": "user:1900000000:65536\nuser:none:65536\n",
	} {
		if err := os.WriteFile(filepath.Join(etc, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := takenUsers(etc)
	if err != nil {
		t.Fatal(err)
	}
	found := map[idRange]bool{}
	for _, r := range got {
		found[r] = true
	}
	want := map[idRange]bool{{0, 1}: true, {2013265920, 1}: true, {50, 1}: true, {1900000000, 65536}: true}
	if diff := cmp.Diff(want, found, cmp.AllowUnexported(idRange{})); diff != "" {
		t.Errorf("numbers that are taken (-want +got):\n%s", diff)
	}
}

func TestChooseUsers(t *testing.T) {
	base, err := chooseUsers("/var/lib/glovebox", nil)
	if err != nil || base < firstUser || base+rangeSize > endUser || base%rangeSize != 0 {
		t.Fatalf("chooseUsers() = %#x, %v", base, err)
	}
	if again, err := chooseUsers("/var/lib/glovebox/", nil); again != base || err != nil {
		t.Errorf("the same directory has the users from %#x, then from %#x: %v", base, again, err)
	}
	// One of them is somebody's: the first, or the last.
	for _, r := range []idRange{{uint64(base), 1}, {uint64(base) + rangeSize - 1, 1}, {uint64(base) - 5, 6}} {
		other, err := chooseUsers("/var/lib/glovebox", []idRange{r})
		if err != nil || other == base || r.overlaps(other) {
			t.Errorf("with %v taken: from %#x, %v", r, other, err)
		}
	}
	for _, r := range []idRange{{uint64(base) - 1, 1}, {uint64(base) + rangeSize, 1}} {
		if other, err := chooseUsers("/var/lib/glovebox", []idRange{r}); err != nil || other != base {
			t.Errorf("with %v taken, beside them: from %#x, %v; want %#x", r, other, err, base)
		}
	}
	all := []idRange{{firstUser, endUser - firstUser}}
	if other, err := chooseUsers("/var/lib/glovebox", all); err == nil || !strings.Contains(err.Error(), "are taken") {
		t.Errorf("with all taken: from %#x, %v", other, err)
	}
}
