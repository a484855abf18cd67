package files_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/guesttest"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// bodies are contents that the guest receives in memory, and in a file.
var bodies = map[string]string{"short": "new", "long": strings.Repeat("0123456", 1<<18)}

// TestWriteInPlace: a write changes the file itself, so other names, open files
// and watches of it see the change.
func TestWriteInPlace(t *testing.T) {
	h := newHost(t)
	for what, text := range bodies {
		t.Run(what, func(t *testing.T) {
			dir := guesttest.UserDir(t, "")
			for _, old := range []string{"", "old", strings.Repeat("old", 1<<20)} {
				h.WriteText(dir+"/f", old)
				if err := os.Chmod(dir+"/f", 0o764); err != nil {
					t.Fatal(err)
				}
				os.Remove(dir + "/other")
				if err := os.Link(dir+"/f", dir+"/other"); err != nil {
					t.Fatal(err)
				}
				open, err := os.Open(dir + "/f")
				if err != nil {
					t.Fatal(err)
				}
				h.WriteText(dir+"/f", text)
				got, err := io.ReadAll(open)
				open.Close()
				if err != nil || string(got) != text {
					t.Errorf("a program that had the file open reads %d bytes, %v; want %d", len(got), err, len(text))
				}
				if got := h.ReadText(dir + "/other"); got != text {
					t.Errorf("behind the other name are %d bytes, want %d", len(got), len(text))
				}
				info, err := os.Stat(dir + "/f")
				if err != nil || info.Mode().Perm() != 0o764 {
					t.Errorf("mode %v, %v", info.Mode(), err)
				}
			}
			entries, err := os.ReadDir(dir)
			if err != nil || len(entries) != 2 {
				t.Errorf("files are left: %v, %v", entries, err)
			}
		})
	}
}

// TestWriteEvents: a watch reports a new file as created, with its mode and
// contents, and an old one as written. No other name shows.
func TestWriteEvents(t *testing.T) {
	h := newHost(t)
	for what, text := range bodies {
		t.Run(what, func(t *testing.T) { writeEvents(t, h, guesttest.UserDir(t, ""), text) })
		t.Run("mount/"+what, func(t *testing.T) { writeEvents(t, h, smallDisk(t, 8<<20), text) })
	}
}

func writeEvents(t *testing.T, h *host, dir, text string) {
	w := h.watch(dir, true)
	h.WriteText(dir+"/f", text)
	h.WriteText(dir+"/first", "")
	h.WriteText(dir+"/f", text[1:])
	h.WriteText(dir+"/done", "")
	events := slices.Compact(eventsOf(changes(t, w))) // a long write is several
	want := []string{
		"f CREATE", "f CHMOD", "f WRITE",
		"first CREATE", "first CHMOD", "first WRITE",
		"f WRITE",
	}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func eventsOf(list []guestapi.FilesystemEvent) []string {
	var texts []string
	for _, e := range list {
		texts = append(texts, e.Name+" "+strings.TrimPrefix(string(e.Type), "EVENT_TYPE_"))
	}
	return texts
}

// TestWriteInClosedDirectory: a file that the user may write is writable in a
// directory that is not, and keeps its owner.
func TestWriteInClosedDirectory(t *testing.T) {
	guesttest.NeedRoot(t)
	h := newHost(t)
	dir, err := os.MkdirTemp("", "closed")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.WriteFile(dir+"/f", []byte("old"), 0o664); err != nil {
		t.Fatal(err)
	}
	const owner = 4321
	for _, err := range []error{os.Chmod(dir, 0o755), os.Chmod(dir+"/f", 0o664), os.Chown(dir+"/f", owner, account.UserID)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for what, text := range bodies {
		h.WriteText(dir+"/f", text)
		info, err := os.Stat(dir + "/f")
		if err != nil || info.Sys().(*syscall.Stat_t).Uid != owner || h.ReadText(dir+"/f") != text {
			t.Errorf("%s: %+v, %v", what, info, err)
		}
	}
	_, err = h.Write(t.Context(), dir+"/new", strings.NewReader(""), guestapi.WriteOptions{})
	guesttest.WantKind(t, err, sandbox.Invalid, "permission denied")
}

// smallDisk mounts a file system of a size for the user.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	guesttest.NeedRoot(t)
	dir := guesttest.UserDir(t, "")
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=777", size)); err != nil {
		t.Skip("cannot mount: ", err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestWriteWithoutRoom: where the new contents do not fit, the old ones stay.
func TestWriteWithoutRoom(t *testing.T) {
	const disk = 1 << 20
	dir := smallDisk(t, disk)
	h := newHost(t)
	h.WriteText(dir+"/f", "old")
	holes := strings.Repeat("\x00", 200<<10)
	sparse, err := os.Create(dir + "/holes")
	if err != nil {
		t.Fatal(err)
	}
	if err := sparse.Truncate(int64(len(holes))); err != nil {
		t.Fatal(err)
	}
	sparse.Close()
	if err := os.Chmod(dir+"/holes", 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/most", make([]byte, disk-64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "holes", "new"} {
		_, err := h.Write(t.Context(), dir+"/"+name, io.LimitReader(pattern{}, 200<<10), guestapi.WriteOptions{})
		guesttest.WantKind(t, err, sandbox.Exhausted, "no space left")
	}
	if h.ReadText(dir+"/f") != "old" || h.ReadText(dir+"/holes") != holes {
		t.Error("the old contents are gone")
	}
	if _, err := os.Stat(dir + "/new"); !os.IsNotExist(err) {
		t.Errorf("a part of the new file is left: %v", err)
	}
}

// TestWriteTakesRoomOnce: a new file may fill the disk, though its contents were
// received before they were written.
func TestWriteTakesRoomOnce(t *testing.T) {
	dir := smallDisk(t, 8<<20)
	h := newHost(t)
	text := strings.Repeat("0123456", 1<<20)
	h.WriteText(dir+"/f", text)
	if h.ReadText(dir+"/f") != text {
		t.Error("the contents differ")
	}
}

// TestConcurrentWrites: a file written by many at once has the contents of one.
func TestConcurrentWrites(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	var all []string
	for i := range 8 {
		all = append(all, strings.Repeat(fmt.Sprint(i), 1000+i*100_000))
	}
	for range 5 {
		var writers sync.WaitGroup
		for _, text := range all {
			writers.Go(func() {
				if _, err := h.Write(t.Context(), dir+"/f", strings.NewReader(text), guestapi.WriteOptions{}); err != nil {
					t.Error(err)
				}
			})
		}
		writers.Wait()
		if got := h.ReadText(dir + "/f"); !slices.Contains(all, got) {
			t.Errorf("%d bytes are of no writer alone", len(got))
		}
	}
}

// TestWriteAfterRemoval: a file that a program removes during an upload is there
// after it.
func TestWriteAfterRemoval(t *testing.T) {
	h := newHost(t)
	dir := guesttest.UserDir(t, "")
	h.WriteText(dir+"/f", "old")
	r, w := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := h.Write(t.Context(), dir+"/f", r, guestapi.WriteOptions{})
		done <- err
	}()
	long := bodies["long"]
	io.WriteString(w, long[:1<<20])
	if err := os.Remove(dir + "/f"); err != nil {
		t.Fatal(err)
	}
	io.WriteString(w, long[1<<20:])
	w.Close()
	if err := <-done; err != nil || h.ReadText(dir+"/f") != long {
		t.Errorf("%v", err)
	}
}
