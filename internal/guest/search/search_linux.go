package search

import (
	"context"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/glob"
	"github.com/glovebox-dev/glovebox/internal/guest/regular"
	"github.com/glovebox-dev/glovebox/internal/guest/rpc"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Find searches a directory or a file with the rights of this thread. It ends with
// what it has found when ctx ends or [sandbox.MaxSearchSeconds] have passed.
func Find(ctx context.Context, r *sandbox.SearchRequest, root string) (*sandbox.Found, error) {
	p, err := Compile(r.Pattern)
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "%v", err)
	}
	g, err := parseGlob(r.Glob)
	if err != nil {
		return nil, err
	}
	most := r.Max
	if most <= 0 {
		most = sandbox.DefaultMatches
	}
	l := NewLines(p, min(max(r.Context, 0), sandbox.MaxContext), min(most, sandbox.MaxMatches))
	ctx, cancel := context.WithTimeout(ctx, sandbox.MaxSearchSeconds*time.Second)
	defer cancel()
	var st unix.Stat_t
	if err := unix.Stat(root, &st); err != nil {
		return nil, rpc.FileError(err, root)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		if err := regular.Check(&st, root); err != nil {
			return nil, err
		}
		return l.single(ctx, root)
	}
	w := &Walk{Root: root, Glob: g, Gitignore: !r.Ignored}
	cut, err := w.Run(ctx, func(e Entry) error {
		if e.Kind != KindFile {
			return nil
		}
		f, size, err := openRegular(e.Dir, e.Name)
		if err == unix.EMFILE || err == unix.ENFILE {
			return rpc.Exhausted("open "+e.Name, err)
		}
		if err != nil {
			if err == unix.EACCES {
				l.Found.Unreadable++
			}
			return nil // otherwise it is gone, or another file
		}
		defer f.close()
		l.file(ctx, f, size, valid([]byte(path.Join(root, e.Rel))))
		return nil
	})
	if err != nil {
		return nil, err
	}
	l.Found.Cut = cut
	l.Found.Unreadable += w.Unreadable
	return &l.Found, nil
}

// single searches one file, which may be behind a link.
func (l *Lines) single(ctx context.Context, name string) (*sandbox.Found, error) {
	f, err := regular.Open(name)
	if err != nil {
		return nil, rpc.FileError(err, name)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, rpc.FileError(err, name)
	}
	l.file(ctx, file(f.Fd()), info.Size(), valid([]byte(name)))
	if ctx.Err() != nil {
		l.Found.Cut = (&Walk{Root: name}).cut(ctx.Err(), "")
	}
	return &l.Found, nil
}

// List calls visit with the path of each file below a directory that matches a glob.
// It ends as Find does.
func List(ctx context.Context, root, pattern string, depth int, visit func(name string) error) (sandbox.Cut, error) {
	g, err := parseGlob(pattern)
	if err != nil {
		return sandbox.Cut{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, sandbox.MaxSearchSeconds*time.Second)
	defer cancel()
	w := &Walk{Root: root, Glob: g, Depth: depth}
	return w.Run(ctx, func(e Entry) error { return visit(strings.TrimSuffix(root, "/") + "/" + e.Rel) })
}

func parseGlob(text string) (*glob.Glob, error) {
	if text == "" {
		return nil, nil
	}
	g, err := glob.Parse(text)
	if err != nil {
		return nil, rpc.Errorf(guestapi.CodeInvalidArgument, "glob: %v", err)
	}
	return g, nil
}
