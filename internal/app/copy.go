package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/hostdir"
	"github.com/glovebox-dev/glovebox/internal/mcpserver"
	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// hostFiles copies between sandboxes and directories of this machine.
type hostFiles struct {
	sys *System
	set *hostdir.Set // the allowed directories
	// anywhere allows every path. It is for the command line, whose user has
	// direct access to the files anyway.
	anywhere bool
}

var _ mcpserver.HostFiles = (*hostFiles)(nil)

// Limits of one copy.
const (
	maxCopyFiles = 200_000
	maxCopyDepth = 64
)

// place opens the allowed directory that contains a path of this machine, and
// returns the rest of the path. find looks up the path. The caller calls done.
func (h *hostFiles) place(p string, find func(*hostdir.Set, string) (*safepath.Dir, string, error)) (d *safepath.Dir, rest string, done func(), err error) {
	if p, err = hostPath(p); err != nil {
		return nil, "", nil, err
	}
	if h.anywhere {
		d, err := safepath.OpenDir(filepath.Dir(p))
		if err != nil {
			return nil, "", nil, hostError(err)
		}
		return d, filepath.Base(p), func() { d.Close() }, nil
	}
	d, rest, err = find(h.set, p)
	if err != nil {
		return nil, "", nil, sandbox.Wrap(err, "host_path", "")
	}
	return d, rest, func() {}, nil
}

// hostPath parses a path of this machine: an absolute path, or a file URL.
func hostPath(p string) (string, error) {
	if u, err := url.Parse(p); err == nil && u.Scheme == "file" {
		p = u.Path
		if len(p) > 2 && p[0] == '/' && p[2] == ':' { // file:///C:/dir
			p = p[1:]
		}
	}
	p = filepath.FromSlash(p)
	if strings.ContainsRune(p, 0) || len(p) > safepath.MaxName {
		return "", sandbox.Errorf(sandbox.Invalid, "host_path: %s is not a path", safepath.Show(p))
	}
	if !filepath.IsAbs(p) {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "host_path: %s is not absolute", safepath.Show(p)), "write the whole path")
	}
	return filepath.Clean(p), nil
}

// hostError gives an error about this machine's files a kind.
func hostError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return sandbox.Errorf(sandbox.NotFound, "host_path: there is no such file")
	case errors.Is(err, fs.ErrPermission):
		return sandbox.Errorf(sandbox.Invalid, "host_path: %w", err)
	case errors.Is(err, safepath.ErrName), errors.Is(err, safepath.ErrType), errors.Is(err, fs.ErrExist):
		return sandbox.Errorf(sandbox.Invalid, "host_path: %w", err)
	case errors.Is(err, safepath.ErrLimit):
		return sandbox.Errorf(sandbox.Exhausted, "host_path: %w", err)
	case strings.Contains(err.Error(), "escapes from parent"):
		return sandbox.Errorf(sandbox.Invalid, "host_path: a link leads out of the directory that was allowed")
	}
	return err
}

// CopyIn copies a file or directory of this machine to a path in a sandbox. A
// directory's content goes into a directory of that name. Links are kept if they
// lead to a file inside the directory.
func (h *hostFiles) CopyIn(ctx context.Context, p sandbox.Principal, from, sandboxID, to string, ignore bool, progress func(sandbox.Copied)) (n sandbox.Copied, err error) {
	dir, name, done, err := h.place(from, (*hostdir.Set).Find)
	if err != nil {
		return n, err
	}
	defer done()
	e := h.sys.Engine
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
		return sandbox.Copied{Files: 1, Bytes: fi.Size()}, nil
	}
	tree, err := dir.Sub(name)
	if err != nil {
		return n, hostError(err)
	}
	defer tree.Close()
	if err := makeDir(ctx, h, p, sandboxID, to); err != nil {
		return n, err
	}
	rules := &ignoring{}
	if ignore {
		rules.read(tree, ".")
	}
	var links []string // pairs of target and name
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
			return makeDir(ctx, h, p, sandboxID, target)
		case f.Mode.Type() == fs.ModeSymlink:
			to, err := tree.Readlink(f.Path)
			if err != nil || !stays(f.Path, to) {
				n.Skipped++
				return nil
			}
			n.Links++
			links = append(links, to, target)
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
		return e.WriteFile(ctx, p, sandboxID, target, r, false)
	})
	if err == nil {
		err = h.link(ctx, p, sandboxID, links)
	}
	return n, hostError(err)
}

// stays reports whether a link at name leads to a file in the same tree. It
// assumes that all other links of the tree do, and that no parent directory of
// name is a link.
func stays(name, target string) bool {
	down := false
	for part := range strings.SplitSeq(filepath.ToSlash(target), "/") {
		switch part {
		case "", ".":
		case "..":
			// After the name of a link, ".." would start from the link's target.
			if down {
				return false
			}
		default:
			down = true
		}
	}
	return !path.IsAbs(target) && !strings.ContainsRune(target, 0) && filepath.IsLocal(path.Join(path.Dir(name), target))
}

func isLink(dir *safepath.Dir, name string) bool {
	fi, err := dir.Lstat(name)
	return err == nil && fi.Mode().Type() == fs.ModeSymlink
}

// belowLink reports whether a directory between base and name is a link. An
// earlier copy may have left such a link.
func belowLink(dir *safepath.Dir, base, name string) bool {
	for at := path.Dir(name); at != base && at != "."; at = path.Dir(at) {
		if isLink(dir, at) {
			return true
		}
	}
	return false
}

func makeDir(ctx context.Context, h *hostFiles, p sandbox.Principal, sandboxID, dir string) error {
	err := h.sys.Engine.MakeDir(ctx, p, sandboxID, dir)
	if errors.Is(err, sandbox.Conflict) {
		return nil
	}
	return err
}

// linkPairs is the maximum number of links per run of ln.
const linkPairs = 500

// link makes links in a sandbox by running ln there.
func (h *hostFiles) link(ctx context.Context, p sandbox.Principal, sandboxID string, pairs []string) error {
	const script = `while [ $# -gt 1 ]; do ln -sfn -- "$1" "$2" || exit 1; shift 2; done`
	for len(pairs) > 0 {
		some := pairs[:min(len(pairs), 2*linkPairs)]
		pairs = pairs[len(some):]
		for i := 1; i < len(some); i += 2 {
			if !path.IsAbs(some[i]) {
				some[i] = path.Join(sandbox.WorkDir, some[i])
			}
		}
		run, err := h.sys.Engine.Start(ctx, p, sandbox.RunRequest{
			SandboxID: sandboxID, Argv: append([]string{"/bin/sh", "-c", script, "sh"}, some...),
		})
		if err != nil {
			return err
		}
		if run, err = h.sys.Engine.Wait(ctx, p, run.ID); err != nil {
			return err
		}
		if run.Verdict.Code != sandbox.OK {
			return sandbox.Errorf(sandbox.Invalid, "path: links could not be made: %s", run.Verdict.Cause)
		}
	}
	return nil
}

// CopyOut copies a file or directory of a sandbox to a path of this machine. It
// replaces an existing file by an atomic rename. It changes an existing
// directory only after the whole content has arrived. It skips links that lead
// out of the copied tree, because programs here might follow them. It also skips
// files that programs here execute or obey, unless the configuration allows
// them. It copies no more bytes than the sandbox may hold.
func (h *hostFiles) CopyOut(ctx context.Context, p sandbox.Principal, sandboxID, from, to string, progress func(sandbox.Copied)) (n sandbox.Copied, err error) {
	dir, name, done, err := h.place(to, (*hostdir.Set).FindToWrite)
	if err != nil {
		return n, err
	}
	defer done()
	e := h.sys.Engine
	if from != "/" {
		from = strings.TrimSuffix(from, "/")
	}
	fi, err := e.StatFile(ctx, p, sandboxID, from)
	if err != nil {
		return n, err
	}
	sb, err := e.Get(ctx, p, sandboxID)
	if err != nil {
		return n, err
	}
	staging, remove, err := dir.Staging()
	if err != nil {
		return n, hostError(err)
	}
	defer remove()
	c := copyOut{h: h, p: p, sandboxID: sandboxID, left: h.mostBytes(sb), progress: progress}
	if fi.Type != sandbox.TypeDirectory {
		return c.file(ctx, from, dir, name, staging)
	}
	list, more, err := e.ListFiles(ctx, p, sandboxID, from, maxCopyDepth)
	if err != nil {
		return n, err
	}
	if more {
		return n, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "path: there are more files than can be listed"),
			"copy parts of it, or make an archive in the sandbox and copy that")
	}
	return c.tree(ctx, fi.Path, list, dir, name, staging)
}

// mostBytes returns the limit on the bytes of one copy: the limit on the
// sandbox's files. The guest is not trusted, and may report and send more.
func (h *hostFiles) mostBytes(sb sandbox.Sandbox) int64 {
	most := sb.Limits.DiskBytes
	if sb.Workspace != "" {
		quota := int64(h.sys.opts.Config.Workspace.Size)
		if quota <= 0 { // the workspace has no quota
			quota = hostdir.MaxBytes
		}
		most += quota
	}
	return most
}

// A copyOut is one copy out of a sandbox.
type copyOut struct {
	h         *hostFiles
	p         sandbox.Principal
	sandboxID string
	left      int64 // bytes that may still be copied
	n         sandbox.Copied
	progress  func(sandbox.Copied)
}

// refuses reports whether a file must be left out, because programs here obey
// it. It records the file's kind in ToolFiles.
func (c *copyOut) refuses(name string) bool {
	tool := hostdir.ToolFile(name)
	return tool != "" && c.refusesTool(tool)
}

// refusesTool is refuses for the name of a tool file.
func (c *copyOut) refusesTool(tool string) bool {
	const most = 10
	if !slices.Contains(c.n.ToolFiles, tool) && len(c.n.ToolFiles) < most {
		c.n.ToolFiles = append(c.n.ToolFiles, tool)
	}
	c.n.Refused = !c.h.anywhere && !c.h.set.AllowToolFiles
	return c.n.Refused
}

// file copies one file to name. If name is a directory, the file goes into it.
func (c *copyOut) file(ctx context.Context, from string, dir *safepath.Dir, name string, staging *safepath.Dir) (sandbox.Copied, error) {
	if here, err := dir.Lstat(name); err == nil && here.IsDir() {
		name = path.Join(name, path.Base(from))
	}
	if c.refuses(name) {
		return c.n, hostdir.Refusal(c.n.ToolFiles[0])
	}
	f, err := c.fetch(ctx, from, dir, name, staging)
	if err != nil {
		return c.n, err
	}
	err = c.place(dir, []string{name}, f.Commit)
	return c.n, hostError(errors.Join(err, f.Discard()))
}

// place calls commit, which puts files at names below dir, under the rules of
// the allowed directories.
func (c *copyOut) place(dir *safepath.Dir, names []string, commit func() error) error {
	if c.h.anywhere {
		return commit()
	}
	return c.h.set.Place(dir, names, commit)
}

// repositories finds directories at or below name that the listed files below
// base would make Git repositories. It returns those to leave out, as paths
// relative to name with a slash at the end.
func (c *copyOut) repositories(base string, list []sandbox.File, dir *safepath.Dir, name string) ([]string, error) {
	var names []string
	for _, f := range list {
		if clean, ok := below(base, f); ok {
			names = append(names, path.Join(name, clean))
		}
	}
	var refused []string
	for _, found := range hostdir.Repositories(dir, names) {
		rel, err := filepath.Rel(name, found)
		if err != nil {
			return nil, err
		}
		if rel = filepath.ToSlash(rel); rel == "." || !filepath.IsLocal(rel) {
			if c.refusesTool(found) {
				return nil, hostdir.RepositoryRefusal(found)
			}
		} else if c.refusesTool(rel) {
			refused = append(refused, rel+"/")
		}
	}
	return refused, nil
}

// below returns the name of a listed file relative to base, and whether the name
// is valid here.
func below(base string, f sandbox.File) (string, bool) {
	rel, ok := strings.CutPrefix(f.Path, strings.TrimSuffix(base, "/")+"/")
	clean, err := safepath.Clean(rel)
	return clean, ok && err == nil && !strings.ContainsRune(rel, '\uFFFD')
}

// tree copies the listed files, which are below base, to the directory name. It
// copies them to a staging directory first, and then moves all of them together.
func (c *copyOut) tree(ctx context.Context, base string, list []sandbox.File, dir *safepath.Dir, name string, staging *safepath.Dir) (sandbox.Copied, error) {
	const whole = "tree"
	if err := staging.MkdirAll(whole); err != nil {
		return c.n, hostError(err)
	}
	tree, err := staging.Sub(whole)
	if err != nil {
		return c.n, hostError(err)
	}
	defer tree.Close()
	repositories, err := c.repositories(base, list, dir, name)
	if err != nil {
		return c.n, err
	}
	var placed []string
	for _, f := range list {
		clean, ok := below(base, f)
		if !ok {
			c.n.Skipped++
			continue
		}
		if c.refuses(clean) || slices.ContainsFunc(repositories, func(r string) bool { return strings.HasPrefix(clean+"/", r) }) {
			continue
		}
		// Do not write through a link: neither through a link that is already
		// here nor through a copied one.
		target := path.Join(name, clean)
		if belowLink(dir, name, target) || belowLink(tree, ".", clean) || f.Type == sandbox.TypeDirectory && isLink(dir, target) {
			c.n.Skipped++
			continue
		}
		// A link to a tool file would give it another name.
		if f.Type == sandbox.TypeSymlink && stays(clean, f.Target) && c.refuses(path.Join(path.Dir(clean), filepath.ToSlash(f.Target))) {
			continue
		}
		if err := c.entry(ctx, f, tree, clean, staging); err != nil {
			return c.n, err
		}
		placed = append(placed, target)
		c.progress(c.n)
	}
	err = c.place(dir, placed, func() error {
		if err := dir.MkdirAll(name); err != nil {
			return err
		}
		to, err := dir.Sub(name)
		if err != nil {
			return err
		}
		defer to.Close()
		return to.Merge(ctx, tree)
	})
	return c.n, hostError(err)
}

// entry copies one file, directory or link of a tree.
func (c *copyOut) entry(ctx context.Context, f sandbox.File, tree *safepath.Dir, name string, staging *safepath.Dir) error {
	switch f.Type {
	case sandbox.TypeDirectory:
		c.n.Directories++
		return hostError(tree.MkdirAll(name))
	case sandbox.TypeSymlink:
		if !stays(name, f.Target) {
			c.n.Skipped++
			return nil
		}
		c.n.Links++
		return hostError(tree.Symlink(f.Target, name))
	case sandbox.TypeFile:
		file, err := c.fetch(ctx, f.Path, tree, name, staging)
		if err != nil {
			return err
		}
		return hostError(file.Commit())
	}
	c.n.Skipped++
	return nil
}

// fetch copies one file out of a sandbox. The caller commits it.
func (c *copyOut) fetch(ctx context.Context, from string, dir *safepath.Dir, name string, staging *safepath.Dir) (*safepath.Pending, error) {
	r, _, err := c.h.sys.Engine.ReadFile(ctx, c.p, c.sandboxID, from, 0, -1)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	f, err := dir.Create(name, staging)
	if err != nil {
		return nil, hostError(err)
	}
	size, err := f.CopySparse(ctx, io.LimitReader(r, c.left+1))
	if c.left -= size; err == nil && c.left < 0 {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "path: there is more in it than its sandbox may hold"),
			"copy parts of it")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("copy %s: %w", safepath.Show(from), err), f.Discard())
	}
	c.n.Files++
	c.n.Bytes += size
	return f, nil
}

// CopyIn copies a file or directory of this machine into any principal's
// sandbox.
func (s *System) CopyIn(ctx context.Context, from, sandboxID, to string, ignore bool) (sandbox.Copied, error) {
	h, p, from, err := s.copier(ctx, sandboxID, from)
	if err != nil {
		return sandbox.Copied{}, err
	}
	return h.CopyIn(ctx, p, from, sandboxID, to, ignore, func(sandbox.Copied) {})
}

// CopyOut copies a file or directory of any principal's sandbox to this machine.
func (s *System) CopyOut(ctx context.Context, sandboxID, from, to string) (sandbox.Copied, error) {
	h, p, to, err := s.copier(ctx, sandboxID, to)
	if err != nil {
		return sandbox.Copied{}, err
	}
	return h.CopyOut(ctx, p, sandboxID, from, to, func(sandbox.Copied) {})
}

func (s *System) copier(ctx context.Context, sandboxID, host string) (*hostFiles, sandbox.Principal, string, error) {
	rec, err := s.store.Sandbox(ctx, sandboxID)
	if err != nil {
		return nil, "", "", err
	}
	host, err = filepath.Abs(host)
	return &hostFiles{sys: s, anywhere: true}, rec.Principal, host, err
}
