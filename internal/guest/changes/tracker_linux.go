package changes

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/guest/account"
	"github.com/glovebox-dev/glovebox/internal/guest/search"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of a tracker.
const (
	maxRecords = 100_000 // changes that are known for requests since a run
	// A look at a run reads this many bytes, and for this time. The other contents are
	// read by a later look, if the files are still the same.
	maxRead = 64 << 20
	runRead = time.Second
	// maxLook bounds a look as a whole.
	maxLook = sandbox.MaxSearchSeconds * time.Second
	// maxSlow is after how many looks in turn that took too long runs go without.
	maxSlow = 2
	// maxWatched is how many directories are looked at besides the working directory
	// and the home. Each may have maxBeside entries, and take a look of lookBeside: an
	// image may have anything there, and its look delays runs.
	maxWatched = 8
	maxBeside  = 5_000
	lookBeside = time.Second
	// maxName is the longest name of a file that is looked at, as a path of the kernel.
	maxName = unix.PathMax
	// tick is more than the resolution of the kernel's clock for files. A file can
	// change within it after a look and have the same state.
	tick = 20 * time.Millisecond
)

// packages is where packages are installed, below the working directory.
const packages = ".glovebox"

// A version is a state of a file. Its place is that of its contents, if they are kept.
type version struct {
	mode         uint32 // Git's
	known        bool   // id is
	late         bool   // the file changed within a tick of the look
	seen         uint32 // the last look that found the file
	id           [20]byte
	size         int64
	mtime, ctime int64
	ino          uint64
	place        place
}

// sameState reports whether the file has not changed, as far as its state shows.
func (v *version) sameState(w *version) bool {
	return v.mode == w.mode && v.size == w.size && v.mtime == w.mtime && v.ctime == w.ctime && v.ino == w.ino
}

// same reports whether two versions are equal; nil is no file.
func (v *version) same(w *version) bool {
	if v == nil || w == nil {
		return v == w
	}
	return v.mode == w.mode && (v.known && w.known && v.id == w.id || v.sameState(w))
}

// A record is a change that a look found. Before is nil for a new file.
type record struct {
	name   string
	before *version
}

// A root is a directory whose files are looked at.
type root struct {
	dir    string
	beside bool // a program started there, and it is not the working directory or the home
	seen   bool // a look has found its files: further ones are new
	left   bool // it has too many files, and is left alone
}

// A mark is the start of a run.
type mark struct {
	run   string
	from  int // number of the first later record
	start int64
}

// A Tracker finds the changes of files. Its methods are safe for concurrent use. The
// caller ends it with Close.
type Tracker struct {
	accounts *account.Accounts
	work     string

	touched atomic.Bool // files may have changed without a run
	began   atomic.Bool // there was a look

	mu       sync.Mutex
	roots    []root // the working directory, the home if it is elsewhere, and those of watch
	homeless bool   // the home was not looked for
	looks    uint32
	cut      sandbox.Cut // of the last look
	many     bool        // there are too many files
	slow     int         // looks in turn that took too long
	current  map[string]*version
	base     map[string]*version // of the files that differ from it, before they did
	records  []record
	dropped  int // records that are forgotten
	marks    []mark
	contents store
}

// New returns a tracker of the working directory and, if it is elsewhere, the user's
// home directory. It also looks at the directories in which programs start. With
// shared, the file system is the host's, and only the working directory is looked at.
func New(accounts *account.Accounts, work string, shared bool) *Tracker {
	t := &Tracker{accounts: accounts, work: work, roots: []root{{dir: work}}, homeless: !shared, current: map[string]*version{}, base: map[string]*version{}}
	if shared {
		t.accounts = nil
	}
	return t
}

// Close frees the kept contents.
func (t *Tracker) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.contents.close()
	t.contents = store{full: true}
}

// Before prepares for a program that starts, which is a run unless run is empty.
func (t *Tracker) Before(run string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.began.Load() || t.touched.Load() {
		t.lookAtRun(context.Background())
	}
	if run == "" {
		return
	}
	if len(t.marks) == sandbox.MaxDiffRuns {
		t.marks = append(t.marks[:0], t.marks[1:]...)
	}
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) // cannot fail with this clock
	t.marks = append(t.marks, mark{run, t.dropped + len(t.records), ts.Nano()})
}

// begin has the first look, unless there was one.
func (t *Tracker) begin() {
	if t.began.Load() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.began.Load() {
		t.lookAtRun(context.Background())
	}
}

// lookAtRun is a look that delays a run. It reports whether the changes are known. A
// tree that is too large is left alone.
func (t *Tracker) lookAtRun(ctx context.Context) bool {
	if t.many || t.slow >= maxSlow {
		return false
	}
	t.look(ctx, maxRead, time.Now().Add(runRead))
	return !t.cut.Incomplete
}

// Watched returns a handler that changes files.
func (t *Tracker) Watched(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		t.begin()
		defer t.touched.Store(true)
		next(w, r)
	}
}

// findHome adds the user's home directory, if it is not part of another root.
func (t *Tracker) findHome() {
	if !t.homeless {
		return
	}
	a, err := t.accounts.Find(account.UserName)
	if err != nil {
		return
	}
	t.homeless = false
	if a.Home != "/" && !within(t.work, a.Home) && !within(a.Home, t.work) {
		t.roots = append(t.roots, root{dir: a.Home})
	}
}

// Watch adds the directory in which a program is about to start, if it is not part of
// a root. Its present files are its base.
func (t *Tracker) Watch(dir string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known := func() bool { r := t.root(dir); return r != nil && (!r.left || r.dir == dir) }
	if t.accounts == nil || !path.IsAbs(dir) || known() {
		return
	}
	t.findHome()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil || dir == "/" || known() || len(t.roots) >= 2+maxWatched {
		return
	}
	t.roots = append(t.roots, root{dir: dir, beside: true})
	r := &t.roots[len(t.roots)-1]
	read := int64(maxRead)
	t.walk(context.Background(), r, true, &read, time.Now().Add(runRead))
	r.seen = true
}

// Errors that end a walk: there are too many files in all, or entries beside the working
// directory.
var (
	errMany   = errors.New("more files than are tracked")
	errBeside = errors.New("more entries than are looked at")
)

// look finds what changed since the last look. It reads at most that many bytes, and
// not after until. The first look records nothing.
func (t *Tracker) look(ctx context.Context, read int64, until time.Time) {
	ctx, cancel := context.WithTimeout(ctx, maxLook)
	defer cancel()
	first := !t.began.Load()
	t.findHome()
	t.touched.Store(false) // a later touch needs another look
	t.looks++
	t.cut, t.many = sandbox.Cut{}, false
	for i := range t.roots {
		if t.roots[i].left {
			continue
		}
		r := &t.roots[i]
		cut := t.walk(ctx, r, first, &read, until)
		if t.many && !r.beside && t.leaveBeside() {
			t.many = false
			cut = t.walk(ctx, r, first, &read, until)
		}
		if t.cut == (sandbox.Cut{}) {
			t.cut = cut
		}
	}
	if t.cut.Incomplete && !t.many {
		t.slow++ // a first look is repeated as a first one
		return
	}
	t.slow = 0
	t.began.Store(true)
	for i := range t.roots {
		t.roots[i].seen = true
	}
	for name, v := range t.current {
		switch {
		case v.seen == t.looks || t.many:
		case v.seen == 0: // a copied file that is ignored
			delete(t.current, name)
		case t.gone(name):
			t.change(name, v, nil, first)
		}
	}
	if len(t.records) > maxRecords {
		n := len(t.records) / 2
		t.records = append([]record(nil), t.records[n:]...)
		t.dropped += n
	}
	for len(t.marks) > 0 && t.marks[0].from < t.dropped {
		t.marks = t.marks[1:]
	}
}

// walk looks at the files of a root, except those of another root below it.
// One beside the others is left alone if that is not possible in its bounds.
func (t *Tracker) walk(ctx context.Context, r *root, first bool, read *int64, until time.Time) sandbox.Cut {
	first = first || !r.seen
	if r.beside {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, lookBeside)
		defer cancel()
	}
	last, found := "", 0
	w := &search.Walk{Root: r.dir, Gitignore: true}
	cut, err := w.Run(ctx, func(e search.Entry) error {
		name := path.Join(r.dir, e.Rel)
		if e.Rel == packages || t.isRoot(name) {
			return fs.SkipDir
		}
		if found++; r.beside && found > maxBeside {
			return errBeside
		}
		if e.Kind != search.KindFile && e.Kind != search.KindLink || len(name) > maxName {
			return nil
		}
		old := t.current[name]
		if old == nil && len(t.current) >= sandbox.MaxTracked {
			return errMany
		}
		last = name
		now := time.Now()
		if now.After(until) {
			*read = -1
		}
		t.visit(e, name, old, first, now.UnixNano(), read)
		return nil
	})
	switch {
	case r.beside && (err == errMany || err == errBeside || cut.Incomplete):
		t.leave(r)
		return sandbox.Cut{}
	case err == errMany:
		t.many = true
		return sandbox.Cut{Incomplete: true, Reason: "there are more than 50,000 files", At: strings.ToValidUTF8(last, "\uFFFD")}
	}
	return cut
}

// visit looks at a file.
func (t *Tracker) visit(e search.Entry, name string, old *version, first bool, now int64, read *int64) {
	v := stateAt(int(e.Dir.Fd()), e.Name)
	if v == nil {
		return // gone, or another kind
	}
	v.seen, v.late = t.looks, now-v.ctime < int64(tick)
	if old != nil && old.sameState(v) && !old.late && (old.known || v.size > min(*read, sandbox.MaxPatchFile)) {
		old.seen = t.looks
		return
	}
	if v.size <= *read {
		*read -= v.size
		t.read(int(e.Dir.Fd()), e.Name, v, old)
	}
	if old != nil && (old.known && v.known && old.id == v.id && old.mode == v.mode || !old.known && old.sameState(v)) {
		v.known = v.known || old.known
		*old = *v // records that have this version mean the same contents
		return
	}
	t.change(name, old, v, first)
}

// read sets the name of a version's contents, and keeps them if they are a text of a
// size to be shown.
func (t *Tracker) read(dir int, name string, v, old *version) {
	content, ok := contentAt(dir, name, v)
	if !ok {
		return
	}
	v.known, v.id = true, blob(content)
	if old != nil && old.known && old.id == v.id {
		v.place = old.place
		return
	}
	if len(content) <= sandbox.MaxDiffFile {
		v.place = t.keep(content)
	}
}

// keep keeps contents, if there is room.
func (t *Tracker) keep(content []byte) place {
	p, ok := t.contents.put(content)
	if ok || t.contents.full {
		return p
	}
	var used []*place
	add := func(v *version) {
		if v != nil {
			used = append(used, &v.place)
		}
	}
	for _, v := range t.current {
		add(v)
	}
	for _, v := range t.base {
		add(v)
	}
	for _, r := range t.records {
		add(r.before)
	}
	t.contents.compact(used)
	p, _ = t.contents.put(content)
	return p
}

// change records that a file has changed.
func (t *Tracker) change(name string, old, now *version, first bool) {
	if now == nil {
		delete(t.current, name)
	} else {
		t.current[name] = now
	}
	if first {
		return
	}
	t.records = append(t.records, record{name, old})
	if _, ok := t.base[name]; !ok {
		t.base[name] = old
	}
}

// gone reports whether a file is not there any more. A file that only left the walk,
// because a .gitignore file names it now, is not gone. A file behind a link is.
func (t *Tracker) gone(name string) bool {
	dir, err := openDir(t.rootDir(name), path.Dir(name))
	if err != nil {
		return true
	}
	defer unix.Close(dir)
	return stateAt(dir, path.Base(name)) == nil
}

// root returns the innermost root of a file, or nil.
func (t *Tracker) root(name string) *root {
	var found *root
	for i := range t.roots {
		if r := &t.roots[i]; within(name, r.dir) && (found == nil || len(r.dir) > len(found.dir)) {
			found = r
		}
	}
	return found
}

// rootDir returns the directory of the root of a file, or "" if it is not looked at.
func (t *Tracker) rootDir(name string) string {
	if r := t.root(name); r != nil && !r.left {
		return r.dir
	}
	return ""
}

// isRoot reports whether a directory is a root.
func (t *Tracker) isRoot(dir string) bool {
	return slices.ContainsFunc(t.roots, func(r root) bool { return r.dir == dir })
}

// leaveBeside makes room for the working directory and the home. It reports whether
// there was a directory to leave.
func (t *Tracker) leaveBeside() (left bool) {
	for i := range t.roots {
		if r := &t.roots[i]; r.beside && !r.left {
			t.leave(r)
			left = true
		}
	}
	return left
}

// leave forgets the files of a root.
func (t *Tracker) leave(r *root) {
	its := func(name string) bool { return t.root(name) == r }
	maps.DeleteFunc(t.current, func(name string, _ *version) bool { return its(name) })
	maps.DeleteFunc(t.base, func(name string, _ *version) bool { return its(name) })
	for i := range t.records {
		if its(t.records[i].name) {
			t.records[i] = record{} // marks count them
		}
	}
	r.left = true
}

// within reports whether a path is dir or below it.
func within(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimSuffix(dir, "/")+"/")
}
