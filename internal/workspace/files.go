package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Files is a workspace whose single files can be described and changed. A workspace
// on this machine is one; one on a remote engine is not.
type Files interface {
	// Describe describes a file, and does not follow a link.
	Describe(name string) (sandbox.VolumeFile, error)
	// List describes the contents of a directory, and of the directories in it down
	// to a depth of at least 1, ordered by path. More than most files, or 4 MiB of
	// paths and targets, are an error of kind Exhausted.
	List(ctx context.Context, name string, depth, most int) ([]sandbox.VolumeFile, error)
	// MakeDir creates a directory, which must not exist. With parents, it creates
	// the directories above, and the directory may exist.
	MakeDir(name string, parents bool) error
	// SetAttributes changes the attributes that are not nil.
	SetAttributes(name string, a sandbox.VolumeAttributes) error
	// Delete removes a file, or a directory with everything in it.
	Delete(name string) error
}

var _ Files = opened{}

// maxListBytes bounds the paths and targets of a list of files. The memory of a list
// and of an answer with it are small multiples.
const maxListBytes = 4 << 20

// Describe implements [Files].
func (w *Workspace) Describe(name string) (sandbox.VolumeFile, error) {
	owner, err := w.owner()
	if err != nil {
		return sandbox.VolumeFile{}, err
	}
	return w.describe(name, owner)
}

// owner returns the user number that the workspace has on this machine. It is
// [sandbox.UserUID] in sandboxes.
func (w *Workspace) owner() (int, error) {
	fi, err := w.dir.Lstat(".")
	if err != nil {
		return 0, explain(err)
	}
	return safepath.AttributesOf(fi).UID, nil
}

func (w *Workspace) describe(name string, owner int) (sandbox.VolumeFile, error) {
	fi, err := w.dir.Lstat(name)
	if err != nil {
		return sandbox.VolumeFile{}, explain(err)
	}
	a := safepath.AttributesOf(fi)
	if a.UID == owner { // an ordinary user's server, whose user is not the sandbox's
		if a.UID != sandbox.UserUID {
			a.GID = sandbox.UserUID
		}
		a.UID = sandbox.UserUID
	}
	f := sandbox.VolumeFile{
		Path: path.Join("/", name), Type: sandbox.TypeOther, Size: fi.Size(), Mode: uint32(fi.Mode().Perm()),
		UID: a.UID, GID: a.GID, Accessed: a.Accessed.UTC(), Modified: fi.ModTime().UTC(), Changed: a.Changed.UTC(),
	}
	switch fi.Mode().Type() {
	case 0:
		f.Type = sandbox.TypeFile
	case fs.ModeDir:
		f.Type = sandbox.TypeDirectory
	case fs.ModeSymlink:
		f.Type = sandbox.TypeSymlink
		if f.Target, err = w.dir.Readlink(name); err != nil {
			return sandbox.VolumeFile{}, explain(err)
		}
	}
	return f, nil
}

// List implements [Files].
func (w *Workspace) List(ctx context.Context, name string, depth, most int) ([]sandbox.VolumeFile, error) {
	owner, err := w.owner()
	if err != nil {
		return nil, err
	}
	top, err := w.describe(name, owner)
	if err != nil {
		return nil, err
	}
	if top.Type != sandbox.TypeDirectory {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s is not a directory", safepath.Show(name))
	}
	dir, err := w.dir.Sub(name)
	if err != nil {
		return nil, explain(err)
	}
	defer dir.Close()
	var names []string
	left := maxListBytes
	take := func(text string) error {
		if left -= len(text); left < 0 {
			return sandbox.Errorf(sandbox.Exhausted, "the paths and links in %s have more than %d bytes: list a smaller directory or a lower depth", safepath.Show(name), maxListBytes)
		}
		return nil
	}
	err = dir.Walk(ctx, most, func(e *safepath.Entry) error {
		if err := take(path.Join("/", name, e.Path)); err != nil {
			return err
		}
		names = append(names, e.Path)
		if e.Mode.IsDir() && strings.Count(e.Path, "/") >= depth-1 {
			return fs.SkipDir
		}
		return nil
	})
	if errors.Is(err, safepath.ErrLimit) {
		return nil, sandbox.Errorf(sandbox.Exhausted, "%s has more than %d files: list a smaller directory or a lower depth", safepath.Show(name), most)
	}
	if err != nil {
		return nil, explain(err)
	}
	slices.Sort(names)
	list := make([]sandbox.VolumeFile, 0, len(names))
	for _, n := range names {
		f, err := w.describe(path.Join(name, n), owner)
		if errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Invalid) {
			continue // it was removed meanwhile, or its name is not UTF-8
		}
		if err == nil {
			err = take(f.Target)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, f)
	}
	return list, nil
}

// MakeDir implements [Files].
func (w *Workspace) MakeDir(name string, parents bool) error {
	if parents {
		return explain(w.dir.MkdirAll(name))
	}
	err := w.dir.Mkdir(name)
	if errors.Is(err, fs.ErrExist) {
		return sandbox.Errorf(sandbox.Conflict, "%s exists already", safepath.Show(name))
	}
	return explain(err)
}

// SetAttributes implements [Files].
func (w *Workspace) SetAttributes(name string, a sandbox.VolumeAttributes) error {
	if a.UID != nil || a.GID != nil {
		if err := w.chown(name, a); err != nil {
			return err
		}
	}
	if a.Mode == nil {
		return nil
	}
	if *a.Mode&^uint32(fs.ModePerm) != 0 {
		return sandbox.Errorf(sandbox.Invalid, "mode: %#o has more than the permissions of the owner, the group and others", *a.Mode)
	}
	return explain(w.dir.Chmod(name, fs.FileMode(*a.Mode)))
}

// maxUID is the largest number of a user or a group in a sandbox.
const maxUID = 65534

func (w *Workspace) chown(name string, a sandbox.VolumeAttributes) error {
	now, err := w.Describe(name)
	if err != nil {
		return err
	}
	ids := map[string]struct {
		asked *int
		now   int
	}{"uid": {a.UID, now.UID}, "gid": {a.GID, now.GID}}
	set := map[string]int{"uid": -1, "gid": -1}
	for what, id := range ids {
		switch {
		case id.asked == nil || *id.asked == id.now:
		case *id.asked < 0 || *id.asked > maxUID:
			return sandbox.Errorf(sandbox.Invalid, "%s: %d is not between 0 and %d", what, *id.asked, maxUID)
		case !w.dir.CanChown():
			return sandbox.Errorf(sandbox.Unsupported, "%s: files of a volume belong to %d, because the server does not run as root", what, sandbox.UserUID)
		default:
			set[what] = *id.asked
		}
	}
	if set["uid"] < 0 && set["gid"] < 0 {
		return nil
	}
	return explain(w.dir.Chown(name, set["uid"], set["gid"]))
}
