package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	reader "github.com/erofs/go-erofs"
	"github.com/google/go-cmp/cmp"
)

// seen is what a reader that is not ours sees of a file.
type seen struct {
	Mode     uint16
	UID, GID uint32
	Mtime    uint64
	Nsec     uint32
	Nlink    int
	Content  string
}

// read reads an image back with another program's reader.
func read(t testing.TB, path string) map[string]seen {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := reader.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]seen{}
	if err := fs.WalkDir(img, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st := fi.Sys().(*reader.Stat)
		s := seen{Mode: modeOf(st.Mode), UID: st.UID, GID: st.GID, Mtime: st.Mtime, Nsec: st.MtimeNs, Nlink: st.Nlink}
		switch {
		case fi.Mode().IsRegular():
			data, err := fs.ReadFile(img, name)
			if err != nil {
				return err
			}
			s.Content = string(data)
		case fi.Mode().Type() == fs.ModeSymlink:
			if s.Content, err = fs.ReadLink(img, name); err != nil {
				return err
			}
		}
		files[name] = s
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return files
}

func modeOf(m fs.FileMode) uint16 {
	mode := uint16(m.Perm())
	for bit, ours := range map[fs.FileMode]uint16{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			mode |= ours
		}
	}
	switch m.Type() {
	case fs.ModeDir:
		return mode | ModeDir
	case fs.ModeSymlink:
		return mode | ModeSymlink
	case fs.ModeNamedPipe:
		return mode | ModeFIFO
	}
	return mode | ModeRegular
}

// want is what the reader should see of a tree.
func want(root *Node, contents map[*Node]string) map[string]seen {
	files := map[string]seen{}
	links := map[*Node]int{}
	var walk func(name string, n *Node)
	walk = func(name string, n *Node) {
		links[n]++
		for c, child := range n.Children {
			walk(filepath.Join(name, c), child)
		}
	}
	walk(".", root)
	var list func(name string, n *Node)
	list = func(name string, n *Node) {
		s := seen{Mode: n.Mode, UID: n.UID, GID: n.GID, Mtime: uint64(n.Mtime), Nsec: n.MtimeNsec, Nlink: links[n], Content: contents[n] + n.Target}
		if n.IsDir() {
			s.Nlink = 2
			for _, c := range n.Children {
				if c.IsDir() {
					s.Nlink++
				}
			}
		}
		files[name] = s
		for c, child := range n.Children {
			list(filepath.Join(name, c), child)
		}
	}
	list(".", root)
	return files
}

func newImage(t testing.TB) (*os.File, *Writer) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "image"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, NewWriter(f)
}

// TestRandomTrees writes trees of all shapes and reads them back.
func TestRandomTrees(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			f, w := newImage(t)
			contents := map[*Node]string{}
			var all []*Node
			node := func(kind uint16) *Node {
				return &Node{
					Mode: kind | uint16(rnd.IntN(0o10000)), UID: rnd.Uint32N(1 << 31), GID: rnd.Uint32N(70000),
					Mtime: rnd.Int64N(1 << 33), MtimeNsec: rnd.Uint32N(1e9),
				}
			}
			name := func() string {
				n := 1 + rnd.IntN(20)
				if rnd.IntN(8) == 0 {
					n = 255
				}
				b := make([]byte, n)
				for i := range b {
					b[i] = "!+-.0aZz~\xff\x01"[rnd.IntN(11)]
				}
				if s := string(b); s != "." && s != ".." {
					return s
				}
				return "x"
			}
			var dir func(depth, most int) *Node
			dir = func(depth, most int) *Node {
				d := node(ModeDir)
				d.Children = map[string]*Node{}
				for range rnd.IntN(most + 1) {
					var n *Node
					switch k := rnd.IntN(10); {
					case k < 2 && depth > 0:
						n = dir(depth-1, most/8)
					case k < 4:
						n = node(ModeSymlink)
						n.Target = strings.Repeat("t", 1+rnd.IntN(4095))
					case k < 5:
						n = node(ModeFIFO)
					case k < 6 && len(all) > 0:
						n = all[rnd.IntN(len(all))] // a hard link
					default:
						n = node(ModeRegular)
						data := make([]byte, []int{0, 1, 4095, 4096, 4097}[rnd.IntN(5)])
						if rnd.IntN(50) == 0 {
							data = make([]byte, 3<<20)
						}
						if rnd.IntN(2) == 0 && len(data) > 0 { // else a hole
							data[rnd.IntN(len(data))] = 'x'
							data[len(data)-1] = 'y'
						}
						e, err := w.Add(bytes.NewReader(data), int64(len(data)))
						if err != nil {
							t.Fatal(err)
						}
						n.Data, contents[n] = e, string(data)
						all = append(all, n)
					}
					d.Children[name()] = n
				}
				return d
			}
			root := dir(2, []int{0, 3, 20, 300}[seed%4])
			if err := w.Finish(root); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want(root, contents), read(t, f.Name())); d != "" {
				t.Errorf("-want +got\n%.1000q", d)
			}
		})
	}
}

// TestHoles shows that zeros take no space, and that data that is dropped gives
// its space back.
func TestHoles(t *testing.T) {
	f, w := newImage(t)
	const size = 1 << 30
	e, err := w.Add(io.LimitReader(zeroReader{}, size), size)
	if err != nil {
		t.Fatal(err)
	}
	dropped, err := w.Add(strings.NewReader(strings.Repeat("d", 8<<20)), 8<<20)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Add(strings.NewReader(strings.Repeat("k", 2<<20)), 2<<20); err != nil {
		t.Fatal(err)
	}
	w.Drop(dropped)
	root := &Node{Mode: ModeDir | 0o755, Children: map[string]*Node{"hole": {Mode: ModeRegular, Data: e}}}
	if err := w.Finish(root); err != nil {
		t.Fatal(err)
	}
	if used := blocksOf(t, f) * 512; used > 4<<20 {
		t.Errorf("an image of a hole of 1 GiB takes %d bytes", used)
	}
}

type zeroReader struct{}

func (zeroReader) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestShortData(t *testing.T) {
	_, w := newImage(t)
	if _, err := w.Add(strings.NewReader("short"), 6); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("Add of less than was said: %v", err)
	}
}

// TestUnfinished shows that an image that was not finished is none.
func TestUnfinished(t *testing.T) {
	f, w := newImage(t)
	if _, err := w.Add(strings.NewReader(strings.Repeat("x", 4<<20)), 4<<20); err != nil {
		t.Fatal(err)
	}
	if _, err := reader.Open(f); err == nil {
		t.Error("an image without a superblock was opened")
	}
}

// TestRead shows that what was added can be read before the image is finished,
// whether it is written already or not.
func TestRead(t *testing.T) {
	_, w := newImage(t)
	texts := []string{"small", strings.Repeat("\x00", 1<<20), strings.Repeat("large", 1<<20), "last"}
	for range 2 {
		var extents []Extent
		for _, text := range texts {
			e, err := w.Add(strings.NewReader(text), int64(len(text)))
			if err != nil {
				t.Fatal(err)
			}
			extents = append(extents, e)
		}
		for i, e := range extents {
			if got, err := w.Read(e); err != nil || string(got) != texts[i] {
				t.Errorf("text %d: %d bytes read, %v", i, len(got), err)
			}
		}
	}
}
