package changes

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/patch"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Routes adds the procedures of changes.
func (t *Tracker) Routes(mux *http.ServeMux) {
	mux.HandleFunc(guestapi.PathChanges, rpc.Unary(t.changes))
	mux.HandleFunc(guestapi.PathDiff, rpc.Unary(t.diff))
	mux.HandleFunc(guestapi.PathBase, rpc.Unary(t.setBase))
}

// A change is a file whose versions differ. A version that is nil is no file.
type change struct {
	name        string
	before, now *version
}

func (c *change) kind() sandbox.Change {
	switch {
	case c.before == nil:
		return sandbox.FileCreated
	case c.now == nil:
		return sandbox.FileRemoved
	}
	return sandbox.FileModified
}

// find returns the mark of a run.
func (t *Tracker) find(run string) (mark, bool) {
	i := slices.IndexFunc(t.marks, func(m mark) bool { return m.run == run })
	if i < 0 {
		return mark{}, false
	}
	return t.marks[i], true
}

// since returns the changes since the base, or since a mark, in the order of names.
func (t *Tracker) since(m *mark) []change {
	before := t.base
	if m != nil {
		before = map[string]*version{}
		for _, r := range t.records[m.from-t.dropped:] {
			if _, ok := before[r.name]; !ok {
				before[r.name] = r.before
			}
		}
	}
	var list []change
	for name, was := range before {
		if now := t.current[name]; !was.same(now) {
			list = append(list, change{name, was, now})
		}
	}
	slices.SortFunc(list, func(a, b change) int { return cmp.Compare(a.name, b.name) })
	return list
}

// add counts a change, and names it if there is room. The name is relative to dir.
func add(out *sandbox.Changes, c *change, dir string, most int) *sandbox.FileChange {
	kind := c.kind()
	switch kind {
	case sandbox.FileCreated:
		out.Created++
	case sandbox.FileModified:
		out.Modified++
	case sandbox.FileRemoved:
		out.Removed++
	}
	if len(out.Files) >= most {
		out.Omitted++
		return nil
	}
	f := sandbox.FileChange{Path: shown(relative(c.name, dir)), Change: kind}
	if c.now != nil {
		f.Size = c.now.size
	}
	out.Files = append(out.Files, f)
	return &out.Files[len(out.Files)-1]
}

// relative returns the name of a file below a directory, or the absolute name of
// another file. The name of dir itself, which is then a file, is its last part.
func relative(name, dir string) string {
	if name == dir {
		return path.Base(name)
	}
	if within(name, dir) {
		return strings.TrimPrefix(strings.TrimPrefix(name, dir), "/")
	}
	return name
}

func shown(name string) string { return strings.ToValidUTF8(name, "\uFFFD") }

// changes answers what a run has changed.
func (t *Tracker) changes(r *http.Request, in *guestapi.ChangesRequest) (*guestapi.ChangesResponse, error) {
	if len(in.Hash) > guestapi.MaxChangesNamed {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "hash: more than %d files", guestapi.MaxChangesNamed)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	known := t.lookAtRun(r.Context())
	out := &guestapi.ChangesResponse{}
	room := int64(maxRead)
	if len(in.Hash) > 0 {
		for _, name := range in.Hash {
			out.Hashes = append(out.Hashes, t.hash(path.Join(t.work, name), &room))
		}
		return out, nil
	}
	m, ok := t.find(in.Run)
	if out.Known = ok && known; !out.Known {
		return out, nil
	}
	list := slices.DeleteFunc(t.since(&m), func(c change) bool { return c.now != nil && c.now.ctime < m.start })
	order := []sandbox.Change{sandbox.FileCreated, sandbox.FileModified, sandbox.FileRemoved}
	slices.SortStableFunc(list, func(a, b change) int { return slices.Index(order, a.kind()) - slices.Index(order, b.kind()) })
	for i := range list {
		if f := add(&out.Changes, &list[i], t.work, guestapi.MaxChangesNamed); f != nil && f.Change != sandbox.FileRemoved {
			f.SHA256 = t.hash(list[i].name, &room)
		}
	}
	return out, nil
}

// hash returns the hash of a regular file, if its contents are within the room.
func (t *Tracker) hash(name string, room *int64) string {
	root := t.rootDir(name)
	if root == "" {
		return ""
	}
	dir, err := openDir(root, path.Dir(name))
	if err != nil {
		return ""
	}
	defer unix.Close(dir)
	v := stateAt(dir, path.Base(name))
	if v == nil || v.mode == patch.ModeLink || v.size > *room {
		return ""
	}
	f, err := openFile(dir, path.Base(name))
	if err != nil {
		return ""
	}
	defer f.Close()
	*room -= v.size
	h := sha256.New()
	if n, err := io.Copy(h, io.LimitReader(f, v.size+1)); err != nil || n != v.size {
		return "" // it is being written
	}
	return hex.EncodeToString(h.Sum(nil))
}

// diff answers with the differences of files.
func (t *Tracker) diff(r *http.Request, in *guestapi.DiffRequest) (*guestapi.DiffResponse, error) {
	if in.MaxText <= 0 || in.MaxText > sandbox.MaxDiffText {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "maxText: %d is not between 1 and %d", in.MaxText, sandbox.MaxDiffText)
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxLook)
	defer cancel()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.look(ctx, math.MaxInt64, time.Now().Add(maxLook))
	dir := t.work
	if in.Path != "" {
		dir = path.Join(t.work, in.Path)
		if path.IsAbs(in.Path) {
			dir = path.Clean(in.Path)
		}
	}
	switch r := t.root(dir); {
	case r == nil:
		var known []string
		for _, r := range t.roots {
			if !r.left {
				known = append(known, r.dir)
			}
		}
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "path: changes are known of %s only; another directory is added by the first command with it as its cwd", strings.Join(known, ", "))
	case r.left:
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "path: changes of %s are not known, because it has more than %d files and directories that no .gitignore names, or takes too long to look at", r.dir, maxBeside)
	}
	var from *mark
	if in.Since != "" {
		m, ok := t.find(in.Since)
		if !ok {
			return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "since: the sandbox does not know the run %q any more, or it was another sandbox's", in.Since)
		}
		from = &m
	}
	out := &guestapi.DiffResponse{}
	out.Cut, out.Diff.Path = t.cut, shown(dir)
	var text bytes.Buffer
	for _, c := range t.since(from) {
		if !within(c.name, dir) {
			continue
		}
		add(&out.Changes, &c, dir, sandbox.MaxDiffNames)
		switch {
		case c.name <= string(in.After):
		case out.NotShown > 0 || ctx.Err() != nil || len(out.LeftOut) == sandbox.MaxDiffNames:
			out.NotShown++
		default:
			at := text.Len()
			reason := t.write(&text, &c, relative(c.name, dir), in.Patch)
			if size := text.Len() - at; reason == "" && text.Len() > in.MaxText {
				text.Truncate(at)
				if at > 0 {
					out.NotShown++
					continue
				}
				reason = fmt.Sprintf("its change has %d bytes, more than %d", size, in.MaxText)
			}
			if reason != "" {
				out.LeftOut = append(out.LeftOut, sandbox.LeftOut{Path: shown(relative(c.name, dir)), Reason: reason})
			}
			out.Next = []byte(c.name)
		}
	}
	if out.NotShown == 0 {
		out.Next = nil
	}
	out.Bytes = text.Bytes()
	return out, nil
}

// write writes the change of a file, or returns the reason why it cannot.
func (t *Tracker) write(w *bytes.Buffer, c *change, name string, binaries bool) string {
	was, now := t.side(c.name, c.before), t.side(c.name, c.now)
	large := func(v *version, most int64) bool { return v != nil && v.size > most }
	switch {
	case large(c.before, sandbox.MaxPatchFile) || large(c.now, sandbox.MaxPatchFile):
		return "the file has more than 8 MiB"
	case was.Mode != 0 && was.ID == "":
		return "the earlier contents are not known"
	case now.Mode != 0 && !now.HasContent:
		return "the file cannot be read, or changed meanwhile"
	case !binaries && (was.Whole || now.Whole):
		return "the text has more than 512 KiB; a patch has it"
	case !binaries && was.Mode != 0 && !was.HasContent && (now.Mode == 0 || patch.IsText(now.Content)) && was.ID != now.ID:
		return "the earlier contents are not kept; a patch has the new ones"
	}
	patch.File(w, name, was, now, binaries)
	return ""
}

func (t *Tracker) side(name string, v *version) patch.Side {
	if v == nil {
		return patch.Side{}
	}
	s := patch.Side{Mode: v.mode}
	if v.known {
		s.ID = hex.EncodeToString(v.id[:])
		s.Content, s.HasContent = t.content(name, v)
	}
	// Lines of a large text would take much memory to compare.
	if len(s.Content) > sandbox.MaxDiffFile && patch.IsText(s.Content) {
		s.Whole = true
	}
	return s
}

// setBase makes the present contents of files their base.
func (t *Tracker) setBase(_ *http.Request, in *guestapi.BaseRequest) (struct{}, error) {
	if len(in.Files) > guestapi.MaxBaseFiles {
		return struct{}{}, rpc.Errorf(guestapi.CodeInvalidArgument, "files: more than %d", guestapi.MaxBaseFiles)
	}
	t.begin()
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, f := range in.Files {
		name := path.Join(t.work, f.Path)
		if path.IsAbs(f.Path) {
			name = path.Clean(f.Path)
		}
		root := t.rootDir(name)
		if root == "" && !f.Executable {
			continue // not looked at
		}
		dir, err := openDir(cmp.Or(root, "/"), path.Dir(name))
		if err != nil {
			continue // removed meanwhile
		}
		t.setBaseAt(dir, name, f.Executable, root != "")
		unix.Close(dir)
	}
	return struct{}{}, nil
}

func (t *Tracker) setBaseAt(dir int, name string, executable, tracked bool) {
	if executable {
		makeExecutable(dir, path.Base(name))
	}
	if !tracked || within(name, path.Join(t.work, packages)) || strings.Contains(name, "/.git/") {
		return
	}
	old := t.current[name]
	if old == nil && len(t.current) >= sandbox.MaxTracked {
		// Files that are ignored may have taken the room.
		t.look(context.Background(), 0, time.Time{})
		if old = t.current[name]; old == nil && len(t.current) >= sandbox.MaxTracked {
			return
		}
	}
	v := stateAt(dir, path.Base(name))
	if v == nil {
		return
	}
	t.read(dir, path.Base(name), v, old)
	v.late = true
	if old != nil {
		v.seen = old.seen
	}
	if old == nil || !old.same(v) {
		t.change(name, old, v, false)
	} else {
		*old = *v
	}
	delete(t.base, name)
}

// makeExecutable lets everybody execute a regular file who may read it.
func makeExecutable(dir int, name string) {
	f, err := openFile(dir, name)
	if err != nil {
		return
	}
	defer f.Close()
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) == nil {
		_ = unix.Fchmod(int(f.Fd()), st.Mode&0o7777|st.Mode>>2&0o111)
	}
}
