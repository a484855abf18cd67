package image

import (
	"maps"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/image/erofs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on names. They are the bounds of Linux, which the sandbox sees.
const (
	maxName  = 255
	maxPath  = 4096
	maxLinks = 40 // symbolic links in one path
)

// A tree is the root file system of an image while its layers are applied, the
// lowest first. It exists only in memory. So no name, link or device in a layer
// can refer to a file of this machine.
type tree struct {
	root  *node
	layer int32 // the layer that is being applied; the lowest is 1
	nodes int
	steps int                // directory lookups so far
	limit int                // on nodes
	text  int                // bytes of names and of link targets
	drop  func(erofs.Extent) // called with data that no node has any more
}

// A node is a file with its state across layers.
type node struct {
	erofs.Node
	children map[string]child // of a directory
	links    int              // the number of its names
	cleared  int32            // the layer that hid all contents from lower layers
}

// A child is an entry of a directory, and the layer that last wrote it.
type child struct {
	*node
	layer int32
}

// stepsPerNode bounds the directory lookups for each file that an image may have.
// Symbolic links can make the path to one file very long.
const stepsPerNode = 128

func newTree(limit int, drop func(erofs.Extent)) *tree {
	t := &tree{limit: limit, drop: drop}
	t.root = newDir(0o755)
	return t
}

func newDir(mode uint16) *node {
	return &node{Node: erofs.Node{Mode: erofs.ModeDir | mode}, children: map[string]child{}}
}

// split splits a path in a layer into names. Every path is relative to the root,
// even with a leading slash. A path with ".." is an error.
func split(path string) ([]string, error) {
	if len(path) > maxPath {
		return nil, sandbox.Errorf(sandbox.Invalid, "the name %s is longer than %d bytes", quote(path), maxPath)
	}
	var names []string
	for name := range strings.SplitSeq(path, "/") {
		switch {
		case name == "" || name == ".":
			continue
		case name == "..":
			return nil, sandbox.Errorf(sandbox.Invalid, "the path %s leads out of the image", quote(path))
		case len(name) > maxName:
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s has a part of more than %d bytes", quote(path), maxName)
		case strings.ContainsRune(name, 0):
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s has a zero byte", quote(path))
		}
		names = append(names, name)
	}
	return names, nil
}

// dir returns the directory at the path names. It follows symbolic links as
// programs of the image would, and no link leads out of the tree. With make, dir
// creates missing directories. Without make, it returns nil for a missing
// directory.
func (t *tree) dir(names []string, make bool) (*node, error) {
	path := []*node{t.root}
	todo := names
	for links := 0; len(todo) > 0; {
		name := todo[0]
		todo = todo[1:]
		if t.steps++; t.steps > stepsPerNode*t.limit {
			return nil, tooManyFiles(t.limit)
		}
		at := path[len(path)-1]
		if name == ".." {
			path = path[:max(1, len(path)-1)]
			continue
		}
		n := at.children[name].node
		switch {
		case n == nil && !make:
			return nil, nil
		case n == nil:
			n = newDir(0o755)
			if err := t.put(at, name, n); err != nil {
				return nil, err
			}
			path = append(path, n)
		case n.IsDir():
			path = append(path, n)
		case n.IsSymlink():
			if links++; links > maxLinks {
				return nil, sandbox.Errorf(sandbox.Invalid, "the path %s has too many links", quote(strings.Join(names, "/")))
			}
			if strings.HasPrefix(n.Target, "/") {
				path = path[:1]
			}
			var via []string
			for s := range strings.SplitSeq(n.Target, "/") {
				if s != "" && s != "." {
					via = append(via, s)
				}
			}
			todo = append(via, todo...)
			if len(todo) > maxPath {
				return nil, sandbox.Errorf(sandbox.Invalid, "the links of the path %s are too long", quote(strings.Join(names, "/")))
			}
		default:
			return nil, sandbox.Errorf(sandbox.Invalid, "%s is not a directory, but the image has files in it", quote(name))
		}
		if len(path) > maxPath/2 {
			return nil, sandbox.Errorf(sandbox.Invalid, "the path %s has too many levels", quote(strings.Join(names, "/")))
		}
	}
	return path[len(path)-1], nil
}

// textPerNode bounds the names and link targets, in bytes for each file that an
// image may have. They are all in memory, and an archive of long links compresses
// to a small size. Real images have some 20 bytes per file.
const textPerNode = 128

// minText is the minimum of the bound on names and link targets, in bytes.
const minText = 1 << 20

// put adds an entry for n to a directory without an entry of that name.
func (t *tree) put(dir *node, name string, n *node) error {
	if n.links == 0 {
		if t.nodes++; t.nodes > t.limit {
			return tooManyFiles(t.limit)
		}
		n.Target = strings.Clone(n.Target)
		t.text += len(n.Target)
	}
	t.text += len(name)
	if most := max(minText, textPerNode*t.limit); t.text > most {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the names and links of the image have more than %s", sandbox.FormatBytes(int64(most))),
			"use a smaller image, or raise images.max_files")
	}
	n.links++
	// Clone the name, because it is a substring of a path that would stay in
	// memory.
	dir.children[strings.Clone(name)] = child{n, t.layer}
	return nil
}

// replace adds an entry for n, and removes an entry that has the name.
func (t *tree) replace(dir *node, name string, n *node) error {
	switch old := dir.children[name]; old.node {
	case nil:
	case n:
		dir.children[name] = child{n, t.layer}
		return nil
	default:
		t.remove(dir, name)
	}
	return t.put(dir, name, n)
}

// remove removes an entry and everything below it.
func (t *tree) remove(dir *node, name string) {
	n := dir.children[name].node
	delete(dir.children, name)
	t.text -= len(name)
	for below := range n.children {
		t.remove(n, below)
	}
	if n.links--; n.links > 0 {
		return
	}
	t.nodes--
	t.text -= len(n.Target)
	t.drop(n.Data)
}

// hide removes an entry of lower layers. Entries of the current layer stay,
// wherever the whiteout is in the layer.
func (t *tree) hide(dir *node, name string) {
	n := dir.children[name]
	switch {
	case n.node == nil:
	case n.IsDir():
		t.hideAll(n.node)
		if len(n.children) == 0 && n.layer < t.layer {
			t.remove(dir, name)
		}
	case n.layer < t.layer:
		t.remove(dir, name)
	}
}

// hideAll removes all entries of lower layers from a directory.
func (t *tree) hideAll(dir *node) {
	if dir.cleared == t.layer {
		return
	}
	dir.cleared = t.layer
	for name := range maps.Clone(dir.children) {
		t.hide(dir, name)
	}
}

// finished converts the tree to the form that the EROFS writer takes. The tree
// must not be used afterwards.
func (t *tree) finished() *erofs.Node {
	var finish func(n *node) *erofs.Node
	finish = func(n *node) *erofs.Node {
		if n.children != nil {
			n.Children = make(map[string]*erofs.Node, len(n.children))
			for name, c := range n.children {
				n.Children[name] = finish(c.node)
			}
			n.children = nil
		}
		return &n.Node
	}
	return finish(t.root)
}

func tooManyFiles(limit int) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the image has more than %d files", limit),
		"use a smaller image, or raise images.max_files")
}
