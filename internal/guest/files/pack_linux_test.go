package files_test

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPackRestore packs files, changes them, and gives them back.
func TestPackRestore(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root gives files to other users")
	}
	h := newHost(t)
	dir := t.TempDir()
	do := func(script string) string {
		t.Helper()
		cmd := exec.Command("sh", "-ec", script)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	const list = `find . | sort | while read -r f; do stat -c '%n %u:%g %a %F %h %s %Y %N' "$f"; done; find . -type f | sort | xargs md5sum`
	do(`mkdir -p tree/a/b; echo 1 > tree/a/b/f; ln tree/a/b/f tree/link; ln -s x tree/sym; mkfifo tree/fifo; chown 5:6 tree/a/b/f; chmod 2750 tree/a
		truncate -s 1000000 tree/hole; printf x >> tree/hole; echo s > single; echo .wh > tree/.wh.x; mkdir alone; touch -d @1000000000 tree/a/b tree/sym alone`)
	order := guestapi.PackOrder{
		Trees: []string{dir + "/tree"}, Files: []string{dir + "/alone", dir + "/single", dir + "/no", dir + "/single/no"}, Gone: []string{dir + "/gone", dir + "/single"},
	}
	r, err := h.Pack(t.Context(), order)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := io.ReadAll(r)
	r.Close()
	if err != nil {
		t.Fatal(err)
	}
	do(`touch -d @1000000000 . tree`)
	want := do(list)
	do(`rm -r tree/a tree/sym; echo file > tree/a; mkdir -p tree/sym/dir gone/deep; echo 2 > tree/link; echo 2 > single; rm tree/fifo; chmod 777 alone; mkdir tree/.wh.x2`)
	if err := h.Restore(t.Context(), bytes.NewReader(archive)); err != nil {
		t.Fatal(err)
	}
	do(`rmdir tree/.wh.x2; touch -d @1000000000 . tree`) // what was not there stays
	if d := cmp.Diff(want, do(list)); d != "" {
		t.Errorf("files, -want +got:\n%s", d)
	}
	if out := do(`stat -c %b tree/hole`); len(strings.TrimSpace(out)) > 2 {
		t.Errorf("a file with a hole has %s blocks", out)
	}
	if err := h.Restore(t.Context(), bytes.NewReader(archive[:len(archive)/2])); err == nil {
		t.Error("half an archive is restored")
	}
}

// TestPackRefused asks for what cannot be packed.
func TestPackRefused(t *testing.T) {
	h := newHost(t)
	for _, name := range []string{"relative", "/", "/a/../b", ""} {
		_, err := h.Pack(t.Context(), guestapi.PackOrder{Files: []string{name}})
		guesttest.WantKind(t, err, sandbox.Invalid, "is not the path of a file")
	}
	// The size of this file is larger than its content, as if it became shorter.
	const shorter = "/sys/devices/system/cpu/online"
	if _, err := os.Stat(shorter); err != nil {
		t.Skip(err)
	}
	r, err := h.Pack(t.Context(), guestapi.PackOrder{Files: []string{filepath.Clean(shorter)}})
	if err != nil {
		return // the stream broke before its first bytes were sent
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err == nil {
		t.Error("an archive with an incomplete file is complete")
	}
}
