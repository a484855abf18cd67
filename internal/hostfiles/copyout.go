package hostfiles

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// CopyOut copies a file or directory of a sandbox to a path of this machine. It
// replaces an existing file by an atomic rename. It changes an existing
// directory only after the whole content has arrived. It skips links that lead
// out of the copied tree, because programs here might follow them. It also skips
// files that programs here execute or obey, unless the configuration allows
// them. It copies no more bytes than the sandbox may hold.
func (h *Copier) CopyOut(ctx context.Context, p sandbox.Principal, sandboxID, from, to string, progress func(sandbox.Copied)) (n sandbox.Copied, err error) {
	dir, name, done, err := h.place(to, (*Directories).findToWrite)
	if err != nil {
		return n, err
	}
	defer done()
	e := h.Sandboxes
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
func (h *Copier) mostBytes(sb sandbox.Sandbox) int64 {
	most := sb.Limits.DiskBytes
	if sb.Workspace != "" {
		quota := h.WorkspaceBytes
		if quota <= 0 { // the workspace has no quota
			quota = maxBytes
		}
		most += quota
	}
	return most
}

// A copyOut is one copy out of a sandbox.
type copyOut struct {
	h         *Copier
	p         sandbox.Principal
	sandboxID string
	left      int64 // bytes that may still be copied
	n         sandbox.Copied
	progress  func(sandbox.Copied)
}

// refuses reports whether a file must be left out, because programs here obey
// it. It records the file's kind in ToolFiles.
func (c *copyOut) refuses(name string) bool {
	tool := toolFile(name)
	return tool != "" && c.refusesTool(tool)
}

// refusesTool is refuses for the name of a tool file.
func (c *copyOut) refusesTool(tool string) bool {
	const most = 10
	if !slices.Contains(c.n.ToolFiles, tool) && len(c.n.ToolFiles) < most {
		c.n.ToolFiles = append(c.n.ToolFiles, tool)
	}
	c.n.Refused = !c.h.Anywhere && !c.h.Allowed.AllowToolFiles
	return c.n.Refused
}

// file copies one file to name. If name is a directory, the file goes into it.
func (c *copyOut) file(ctx context.Context, from string, dir *safepath.Dir, name string, staging *safepath.Dir) (sandbox.Copied, error) {
	if here, err := dir.Lstat(name); err == nil && here.IsDir() {
		name = path.Join(name, path.Base(from))
	}
	if c.refuses(name) {
		return c.n, refusal(c.n.ToolFiles[0])
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
	if c.h.Anywhere {
		return commit()
	}
	return c.h.Allowed.place(dir, names, commit)
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
	for _, found := range repositories(dir, names) {
		rel, err := filepath.Rel(name, found)
		if err != nil {
			return nil, err
		}
		if rel = filepath.ToSlash(rel); rel == "." || !filepath.IsLocal(rel) {
			if c.refusesTool(found) {
				return nil, repositoryRefusal(found)
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
	r, _, err := c.h.Sandboxes.ReadFile(ctx, c.p, c.sandboxID, from, 0, -1)
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
