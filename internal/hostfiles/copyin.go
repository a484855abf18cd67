package hostfiles

import (
	"context"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CopyIn copies a file or directory of this machine to a path in a sandbox. A
// directory's content goes into a directory of that name. Links are kept if they
// lead to a file inside the directory. Executable files stay executable. Changes of the
// files count from the copy.
func (h *Copier) CopyIn(ctx context.Context, p sandbox.Principal, from, sandboxID, to string, ignore bool, progress func(sandbox.Copied)) (n sandbox.Copied, err error) {
	dir, name, done, err := h.place(from, (*Directories).findToRead)
	if err != nil {
		return n, err
	}
	defer done()
	e := h.Sandboxes
	fi, err := dir.Lstat(name)
	if err != nil {
		return n, hostError(err)
	}
	if !fi.IsDir() {
		f, fi, err := dir.Open(name)
		if err != nil {
			return n, hostError(err)
		}
		defer f.Close()
		if strings.HasSuffix(to, "/") {
			to += path.Base(filepath.ToSlash(from))
		}
		if err := e.WriteFile(ctx, p, sandboxID, to, f, false); err != nil {
			return n, err
		}
		err = h.setBase(ctx, p, sandboxID, []sandbox.CopiedFile{{Path: to, Executable: fi.Mode()&0o100 != 0}})
		return sandbox.Copied{Files: 1, Bytes: fi.Size()}, err
	}
	tree, err := dir.Sub(name)
	if err != nil {
		return n, hostError(err)
	}
	defer tree.Close()
	if err := h.makeDir(ctx, p, sandboxID, to); err != nil {
		return n, err
	}
	rules := &ignoring{}
	if ignore {
		rules.read(tree, ".")
	}
	var links []string // pairs of target and name
	var copied []sandbox.CopiedFile
	err = tree.Walk(ctx, maxCopyFiles, func(f *safepath.Entry) error {
		if _, err := safepath.Clean(f.Path); err != nil || rules.ignores(f.Path, f.Mode.IsDir()) {
			if err != nil {
				n.Skipped++
			}
			return nil
		}
		defer progress(n)
		target := path.Join(to, f.Path)
		switch {
		case f.Mode.IsDir():
			n.Directories++
			if ignore {
				rules.read(tree, f.Path)
			}
			return h.makeDir(ctx, p, sandboxID, target)
		case f.Mode.Type() == fs.ModeSymlink:
			to, err := tree.Readlink(f.Path)
			if err != nil || !stays(f.Path, to) {
				n.Skipped++
				return nil
			}
			n.Links++
			links = append(links, to, target)
			copied = append(copied, sandbox.CopiedFile{Path: target})
			return nil
		case !f.Mode.IsRegular():
			n.Skipped++
			return nil
		}
		r, fi, err := tree.Open(f.Path)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, safepath.ErrType) {
			return nil // removed or replaced meanwhile
		}
		if err != nil {
			return hostError(err)
		}
		defer r.Close()
		n.Files++
		n.Bytes += fi.Size()
		copied = append(copied, sandbox.CopiedFile{Path: target, Executable: fi.Mode()&0o100 != 0})
		return e.WriteFile(ctx, p, sandboxID, target, r, false)
	})
	if err == nil {
		err = h.link(ctx, p, sandboxID, links)
	}
	if err == nil {
		err = h.setBase(ctx, p, sandboxID, copied)
	}
	return n, hostError(err)
}

// setBase makes copied files the base of later changes. An agent that is not ours
// knows no changes.
func (h *Copier) setBase(ctx context.Context, p sandbox.Principal, sandboxID string, files []sandbox.CopiedFile) error {
	err := h.Sandboxes.SetBase(ctx, p, sandboxID, files)
	if errors.Is(err, sandbox.Unsupported) {
		return nil
	}
	return err
}

// makeDir makes a directory in a sandbox, unless it exists.
func (h *Copier) makeDir(ctx context.Context, p sandbox.Principal, sandboxID, dir string) error {
	err := h.Sandboxes.MakeDir(ctx, p, sandboxID, dir)
	if errors.Is(err, sandbox.Conflict) {
		return nil
	}
	return err
}

// linkPairs is the maximum number of links per run of ln.
const linkPairs = 500

// link makes links in a sandbox by running ln there.
func (h *Copier) link(ctx context.Context, p sandbox.Principal, sandboxID string, pairs []string) error {
	const script = `while [ $# -gt 1 ]; do ln -sfn -- "$1" "$2" || exit 1; shift 2; done`
	for len(pairs) > 0 {
		some := pairs[:min(len(pairs), 2*linkPairs)]
		pairs = pairs[len(some):]
		for i := 1; i < len(some); i += 2 {
			if !path.IsAbs(some[i]) {
				some[i] = path.Join(sandbox.WorkDir, some[i])
			}
		}
		run, err := h.Sandboxes.Start(ctx, p, sandbox.RunRequest{
			SandboxID: sandboxID, Argv: append([]string{"/bin/sh", "-c", script, "sh"}, some...),
		})
		if err != nil {
			return err
		}
		if run, err = h.Sandboxes.Wait(ctx, p, run.ID); err != nil {
			return err
		}
		if run.Verdict.Code != sandbox.OK {
			return sandbox.Errorf(sandbox.Invalid, "path: links could not be made: %s", run.Verdict.Cause)
		}
	}
	return nil
}
