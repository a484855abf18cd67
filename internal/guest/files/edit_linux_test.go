package files_test

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestEditInPlace: an edit keeps the file itself with its mode, attributes, names and
// open descriptors, and a watch sees one write of it. An edit that does not apply is
// no event.
func TestEditInPlace(t *testing.T) {
	h := newHost(t)
	for what, pad := range map[string]string{"short": "", "long": strings.Repeat("0123456\n", 1<<17)} {
		t.Run(what, func(t *testing.T) {
			dir := guesttest.UserDir(t, "")
			h.WriteText(dir+"/f", pad+"old text\xff")
			if err := errors.Join(os.Chmod(dir+"/f", 0o764), os.Link(dir+"/f", dir+"/other")); err != nil {
				t.Fatal(err)
			}
			attribute := unix.Setxattr(dir+"/f", "user.e2b.author", []byte("me"), 0)
			w := h.watch(dir, true)
			if _, err := h.Edit(t.Context(), dir+"/f", []sandbox.Edit{{Old: "none", New: "x"}}, noOpts); !errors.Is(err, sandbox.Invalid) {
				t.Errorf("no match: %v", err)
			}
			if _, err := h.Edit(t.Context(), dir+"/f", []sandbox.Edit{{Old: "old", New: "new"}}, noOpts); err != nil {
				t.Fatal(err)
			}
			h.WriteText(dir+"/done", "")
			for _, e := range changes(t, w) {
				if e.Name != "f" && e.Name != "other" || e.Type != guestapi.EventWrite {
					t.Errorf("an event %s of %s", e.Type, e.Name)
				}
			}
			if got := h.ReadText(dir + "/other"); got != pad+"new text\xff" {
				t.Errorf("behind the other name: %d bytes, %.20q", len(got), got[len(pad):])
			}
			info, err := os.Stat(dir + "/f")
			if err != nil || info.Mode().Perm() != 0o764 {
				t.Errorf("mode %v, %v", info.Mode(), err)
			}
			value := make([]byte, 10)
			if n, err := unix.Getxattr(dir+"/f", "user.e2b.author", value); attribute == nil && (err != nil || string(value[:n]) != "me") {
				t.Errorf("the attribute is %q, %v", value[:max(n, 0)], err)
			}
		})
	}
}

// TestEditsAtOnce: edits of one file at once are all made, because each reads the
// result of the one before.
func TestEditsAtOnce(t *testing.T) {
	h := newHost(t)
	name := guesttest.UserDir(t, "") + "/f"
	h.WriteText(name, "abcdefghij")
	var wg sync.WaitGroup
	for _, c := range "abcdefghij" {
		wg.Go(func() {
			if _, err := h.Edit(t.Context(), name, []sandbox.Edit{{Old: string(c), New: strings.ToUpper(string(c)) + "\n"}}, noOpts); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := h.ReadText(name); got != "A\nB\nC\nD\nE\nF\nG\nH\nI\nJ\n" {
		t.Errorf("the file is %q", got)
	}
}

// TestEditRefused: a read-only file is not edited, and a full disk leaves the contents.
func TestEditRefused(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/f", "text")
	for what, edits := range map[string][]sandbox.Edit{"none": {{}}, "too many": make([]sandbox.Edit, sandbox.MaxEdits+1)} {
		if _, err := h.Edit(t.Context(), dir+"/f", edits, noOpts); !errors.Is(err, sandbox.Invalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	disk := smallDisk(t, 1<<20)
	h.WriteText(disk+"/f", "text "+strings.Repeat("a", 500_000))
	_, err := h.Edit(t.Context(), disk+"/f", []sandbox.Edit{{Old: "a", New: "aaa", All: true}}, noOpts)
	if !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("on a full disk: %v", err)
	}
	if got := h.ReadText(disk + "/f"); len(got) != 500_005 || strings.Trim(got, "a") != "text " {
		t.Errorf("the file has %d bytes", len(got))
	}
}
