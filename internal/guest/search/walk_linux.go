package search

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/glob"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Walk visits the files below a directory, in the order of their names in each
// directory. A directory comes before its contents.
type Walk struct {
	// Root is a clean absolute path. If it is a link, its target is walked.
	Root string
	// Glob, if set, restricts what is visited.
	Glob *glob.Glob
	// Depth bounds the levels; zero is all of them, up to 256.
	Depth int
	// Gitignore leaves out .git, and what .gitignore files name: those below Root,
	// and those above it up to the directory that has .git.
	Gitignore bool

	// Unreadable counts directories that were left out: the user may not read them,
	// or they are too deep.
	Unreadable int

	frames []*frame
	above  []above
	rules  int // in frames and above
	room   int // for names
}

// Bounds of a walk.
const (
	maxDepth  = 256
	maxNames  = 48 << 20  // bytes of the names of the directories on the way
	maxIgnore = 256 << 10 // bytes of a .gitignore that count
	maxRules  = 10_000    // rules on the way that count
)

// A frame is a directory on the way.
type frame struct {
	f     *os.File
	dev   uint64
	rel   string // path below the root, "" for the root
	names *names
	next  int
	rules []glob.Rule
}

// above are the rules of a directory above the root. Prefix is the path of the root
// below it.
type above struct {
	prefix string
	rules  []glob.Rule
}

// An Entry is a visited file: a name in an open directory. Rel is its path below the
// root.
type Entry struct {
	Dir  *os.File
	Name string
	Rel  string
	Kind byte
}

// Run calls visit for each file. An error of visit ends the walk, except [fs.SkipDir]: the
// walk then does not enter the directory. If ctx ends, or a
// directory is too large, the walk is incomplete, which is no error.
func (w *Walk) Run(ctx context.Context, visit func(e Entry) error) (sandbox.Cut, error) {
	f, err := os.OpenFile(w.Root, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return sandbox.Cut{}, rpc.FileError(err, w.Root)
	}
	w.room = maxNames
	defer func() {
		for len(w.frames) > 0 {
			w.pop()
		}
	}()
	if w.Gitignore {
		w.readAbove()
	}
	if err := w.push(ctx, f, "", 0); err != nil {
		return w.cut(err, ""), nil
	}
	if len(w.frames) == 0 {
		return sandbox.Cut{}, rpc.Errorf(guestapi.CodeInvalidArgument, "%s: has the kernel's answers and no files to search", w.Root)
	}
	at := ""
	for len(w.frames) > 0 {
		if ctx.Err() != nil {
			return w.cut(ctx.Err(), at), nil
		}
		top := w.frames[len(w.frames)-1]
		if top.next == top.names.len() {
			w.pop()
			continue
		}
		e := Entry{Dir: top.f, Name: string(top.names.name(top.next)), Kind: top.names.kind(top.next)}
		e.Rel = path.Join(top.rel, e.Name)
		top.next++
		if w.Gitignore && (e.Name == ".git" || w.ignored(e.Rel, e.Kind == kindDir)) {
			continue
		}
		if w.Glob == nil || w.Glob.Matches(e.Rel) {
			err := visit(e)
			if err != nil && err != fs.SkipDir {
				return sandbox.Cut{}, err
			}
			if ctx.Err() != nil { // the visit may be incomplete
				return w.cut(ctx.Err(), at), nil
			}
			if err == fs.SkipDir {
				continue
			}
		}
		at = e.Rel
		if e.Kind != kindDir || w.Depth > 0 && len(w.frames) >= w.Depth || w.Glob != nil && !w.Glob.Enters(e.Rel) {
			continue
		}
		if err := w.enter(ctx, e, top.dev); err != nil && ctx.Err() == nil {
			return w.cut(err, e.Rel), nil
		}
	}
	return sandbox.Cut{}, nil
}

// enter goes into a directory. An error is about the whole walk.
func (w *Walk) enter(ctx context.Context, e Entry, parent uint64) error {
	if len(w.frames) >= maxDepth {
		w.Unreadable++
		return nil
	}
	f, err := openDirAt(e.Dir, e.Name)
	if err != nil {
		if err == unix.EACCES {
			w.Unreadable++
		}
		return nil // otherwise it is gone
	}
	err = w.push(ctx, f, e.Rel, parent)
	if err != nil && !errors.Is(err, errNames) {
		w.Unreadable++
		return nil
	}
	return err
}

// push adds an open directory, which it closes on an error.
func (w *Walk) push(ctx context.Context, f *os.File, rel string, parent uint64) (err error) {
	fr := &frame{f: f, rel: rel}
	defer func() {
		if fr.names == nil {
			f.Close()
		}
	}()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return err
	}
	if fr.dev = st.Dev; fr.dev != parent && ofKernel(f) {
		return nil
	}
	if fr.names, err = readNames(ctx, f, w.room); err != nil {
		return err
	}
	w.room -= fr.names.size()
	if w.Gitignore {
		fr.rules = w.readRules(f)
	}
	w.frames = append(w.frames, fr)
	return nil
}

func (w *Walk) pop() {
	top := w.frames[len(w.frames)-1]
	w.frames = w.frames[:len(w.frames)-1]
	w.room += top.names.size()
	w.rules -= len(top.rules)
	w.room += rulesSize(top.rules)
	top.f.Close()
}

// cut says why the walk ends after the file at.
func (w *Walk) cut(err error, at string) sandbox.Cut {
	reason := "the time for a search has passed"
	switch {
	case errors.Is(err, errNames):
		reason = "the directory " + errNames.Error()
	case errors.Is(err, context.Canceled):
		reason = "the call was cancelled"
	case !errors.Is(err, context.DeadlineExceeded):
		reason = err.Error()
	}
	return sandbox.Cut{Incomplete: true, Reason: reason, At: strings.ToValidUTF8(path.Join(w.Root, at), "\uFFFD")}
}

// ignored reports whether .gitignore files leave a file out. The nearest file whose
// rules match decides.
func (w *Walk) ignored(rel string, isDir bool) bool {
	for i := len(w.frames) - 1; i >= 0; i-- {
		fr := w.frames[i]
		name := strings.TrimPrefix(rel[len(fr.rel):], "/")
		if out, ok := decide(fr.rules, name, isDir); ok {
			return out
		}
	}
	for i := range w.above {
		if out, ok := decide(w.above[i].rules, w.above[i].prefix+"/"+rel, isDir); ok {
			return out
		}
	}
	return false
}

func decide(rules []glob.Rule, name string, isDir bool) (out, ok bool) {
	for i := len(rules) - 1; i >= 0; i-- {
		if rules[i].Matches(name, isDir) {
			return !rules[i].Negated(), true
		}
	}
	return false, false
}

// readRules reads the .gitignore of a directory, if there is one.
func (w *Walk) readRules(dir *os.File) []glob.Rule {
	f, _, err := openRegular(dir, ".gitignore")
	if err != nil {
		return nil
	}
	defer f.close()
	text := make([]byte, maxIgnore)
	n, err := f.readAt(text, 0)
	if err != nil {
		return nil
	}
	rules, _ := glob.ParseRules(string(text[:n]), maxRules-w.rules)
	if size := rulesSize(rules); size < w.room {
		w.room -= size
		w.rules += len(rules)
		return rules
	}
	return nil // as if there were too many rules
}

// rulesSize returns the memory that rules take, in bytes.
func rulesSize(rules []glob.Rule) (n int) {
	for i := range rules {
		n += rules[i].Size()
	}
	return n
}

// readAbove reads the .gitignore files above the root, the nearest first, if one of
// the directories has .git.
func (w *Walk) readAbove() {
	prefix := ""
	var found []above
	for dir := w.Root; dir != "/" && len(found) < maxDepth; {
		if unix.Access(path.Join(dir, ".git"), unix.F_OK) == nil {
			w.above = found
			return
		}
		prefix = path.Join(path.Base(dir), prefix)
		dir = path.Dir(dir)
		f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return
		}
		found = append(found, above{prefix, w.readRules(f)})
		f.Close()
	}
}

// ofKernel reports whether a directory is on a file system whose files are answers of
// the kernel.
func ofKernel(dir *os.File) bool {
	var st unix.Statfs_t
	if unix.Fstatfs(int(dir.Fd()), &st) != nil {
		return false
	}
	switch uint32(st.Type) {
	case unix.PROC_SUPER_MAGIC, unix.SYSFS_MAGIC, unix.CGROUP_SUPER_MAGIC, unix.CGROUP2_SUPER_MAGIC, unix.DEBUGFS_MAGIC,
		unix.TRACEFS_MAGIC, unix.SECURITYFS_MAGIC, unix.BPF_FS_MAGIC, unix.SELINUX_MAGIC, unix.PSTOREFS_MAGIC, unix.DEVPTS_SUPER_MAGIC:
		return true
	}
	return false
}
