package image

import (
	"maps"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/image/erofs"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds on names, which are those of the system that will see them.
const (
	maxName  = 255
	maxPath  = 4096
	maxLinks = 40 // that are followed on one way
)

// A tree is the root file system of an image while its layers are applied, the
// lowest first. It is all in memory: no file of an image ever is a file of this
// machine, so that nothing in a layer, neither a name nor a link nor a device,
// can reach one.
type tree struct {
	root  *node
	layer int32 // that is being applied; the lowest is 1
	nodes int
	steps int                // from directory to directory so far
	limit int                // of nodes
	text  int                // bytes of names and of what links say
	drop  func(erofs.Extent) // data that nothing has any more
}

// A node is a file as layers know it.
type node struct {
	erofs.Node
	children map[string]child // of a directory
	links    int              // names that it has
	cleared  int32            // the layer that hid all that lower ones have in it
}

// A child is what a directory has under a name, and the layer that last said so.
type child struct {
	*node
	layer int32
}

// stepsPerNode bounds the ways to files, for each file that an image may have:
// links can make the way to one file very long.
const stepsPerNode = 128

func newTree(limit int, drop func(erofs.Extent)) *tree {
	t := &tree{limit: limit, drop: drop}
	t.root = newDir(0o755)
	return t
}

func newDir(mode uint16) *node {
	return &node{Node: erofs.Node{Mode: erofs.ModeDir | mode}, children: map[string]child{}}
}

// split returns the names that a path in a layer consists of. A layer is taken
// by its word that paths begin at the root, but not if one climbs.
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
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s leads out of the image", quote(path))
		case len(name) > maxName:
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s has a part of more than %d bytes", quote(path), maxName)
		case strings.ContainsRune(name, 0):
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s has a zero byte", quote(path))
		}
		names = append(names, name)
	}
	return names, nil
}

// dir returns the directory that names lead to, following links as the image's
// own programs would: none leads out. With make, directories that are missing
// are made; else a missing one is nil.
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
				return nil, sandbox.Errorf(sandbox.Invalid, "the name %s leads through too many links", quote(strings.Join(names, "/")))
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
				return nil, sandbox.Errorf(sandbox.Invalid, "the name %s leads through too long links", quote(strings.Join(names, "/")))
			}
		default:
			return nil, sandbox.Errorf(sandbox.Invalid, "%s is not a directory, but files are to be in it", quote(name))
		}
		if len(path) > maxPath/2 {
			return nil, sandbox.Errorf(sandbox.Invalid, "the name %s is too deep", quote(strings.Join(names, "/")))
		}
	}
	return path[len(path)-1], nil
}

// textPerNode bounds, in bytes, the names of files and what links say, for each
// file that an image may have: all of it is in memory, and an archive of long
// links is small when it is compressed. Images have some 20.
const textPerNode = 128

// minText is the least bound on names and links, in bytes.
const minText = 1 << 20

// put gives n a name in a directory that does not have it.
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
	// A clone: the name is part of a path that would be kept with it.
	dir.children[strings.Clone(name)] = child{n, t.layer}
	return nil
}

// replace gives n a name, whatever has it now.
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

// remove takes a name away, with all below it.
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

// hide removes what lower layers have under a name. What the present layer has
// stays, wherever in the layer its whiteout stands.
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

// hideAll removes all that lower layers have in a directory.
func (t *tree) hideAll(dir *node) {
	if dir.cleared == t.layer {
		return
	}
	dir.cleared = t.layer
	for name := range maps.Clone(dir.children) {
		t.hide(dir, name)
	}
}

// finished returns the tree as an image is written from it. The tree is of no
// use after that.
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
