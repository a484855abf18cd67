package imagebuild

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Bench is the place where an image is made step by step: a base, a
// configuration, and a sandbox of the base in which programs run. A [Build] works
// on one. Callers with steps of their own use it directly: [Bench.From], then any
// of Run, Copy and MakeDir, then [Bench.Finish]. They change Config meanwhile. The
// caller must call [Bench.Close]. The methods must not overlap.
type Bench struct {
	Sandboxes Sandboxes
	Images    Images
	// Principal owns the sandbox. Name and By are the name of the new image, and
	// how it was made, for display.
	Principal sandbox.Principal
	Name, By  string
	// Limits and Network apply to the sandbox. TTL, if not zero, ends it even if
	// this process cannot. Timeout bounds each program.
	Limits  sandbox.Limits
	Network sandbox.Network
	TTL     time.Duration
	Timeout time.Duration
	// Said receives the output of programs. Progress, if not nil, receives the
	// progress while the base is fetched.
	Said     io.Writer
	Progress func(sandbox.ImageProgress)
	// Made, if not nil, is called with the identifier of the sandbox as soon as it
	// exists. An error ends the build.
	Made func(ctx context.Context, id string) error
	// Config is the configuration of the image. From sets it to the base's.
	Config sandbox.ImageConfig

	base    string // empty before From
	sandbox string // empty before it is needed
}

// From chooses the base, and fetches it if it is not here.
func (b *Bench) From(ctx context.Context, ref string) error {
	if ref == sandbox.ImageHost {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "the image host is this machine's, and no base"),
			"begin with another image; glovebox images load takes one from a file")
	}
	if ref == sandbox.ImageScratch {
		b.base = ref
		return nil
	}
	base, err := b.Images.PullImage(ctx, driver.ImagePull{Ref: ref, Missing: true, Progress: b.Progress})
	if err != nil {
		return err
	}
	b.base, b.Config = base.ID, copyConfig(base.Config)
	return nil
}

// need creates the sandbox on first use.
func (b *Bench) need(ctx context.Context) error {
	if b.sandbox != "" {
		return nil
	}
	made, err := b.Sandboxes.Create(ctx, b.Principal, sandbox.CreateRequest{
		Name: "build", Image: b.base, Limits: b.Limits, Network: b.Network, TTL: b.TTL,
	})
	if err != nil {
		return err
	}
	b.sandbox = made.ID
	if b.Made != nil {
		if err := b.Made(ctx, made.ID); err != nil {
			return err
		}
	}
	return b.Sandboxes.MarkLayer(ctx, b.Principal, b.sandbox)
}

// Run runs a program in the sandbox as a user of the image; "" is root. dir is its
// working directory. The error wraps [sandbox.Conflict] if the program fails, and
// [sandbox.ErrNoProgram] if there is no such program.
func (b *Bench) Run(ctx context.Context, argv []string, user, dir string, env map[string]string) error {
	if err := b.need(ctx); err != nil {
		return err
	}
	run, err := b.Sandboxes.Start(ctx, b.Principal, sandbox.RunRequest{
		SandboxID: b.sandbox, Argv: argv, Dir: dir, Env: env, Root: true, As: user, Timeout: b.Timeout,
	})
	if err != nil {
		return err
	}
	err = b.Sandboxes.Follow(ctx, b.Principal, run.ID, func(_ sandbox.StreamName, data []byte) error {
		_, err := b.Said.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	if run, err = b.Sandboxes.Wait(ctx, b.Principal, run.ID); err != nil {
		return err
	}
	v := run.Verdict
	if v.Code == sandbox.OK {
		return nil
	}
	err = sandbox.Errorf(sandbox.Conflict, "%s: %s", v.Code, v.Cause)
	if v.NextStep != "" {
		err = sandbox.WithHint(err, "%s", v.NextStep)
	}
	return err
}

// MakeDir creates a directory of the image, and the directories above it.
func (b *Bench) MakeDir(ctx context.Context, dir string) error {
	if err := b.need(ctx); err != nil {
		return err
	}
	return b.Sandboxes.Unpack(ctx, b.Principal, b.sandbox, strings.NewReader(""), sandbox.UnpackTo{Path: dir})
}

// A Copy is an order to copy a file of a directory into the image.
type Copy struct {
	// From is a directory of this machine, which nothing is copied from outside of.
	// Source is a path in it. Of a directory, the contents are copied.
	From, Source string
	// To is an absolute path in the image. If it ends with a slash, it is a
	// directory, and a file keeps its name there.
	To string
	// Owner is as in [sandbox.UnpackTo]. Mode replaces the modes, unless negative.
	Owner string
	Mode  int64
}

// Copy copies files into the sandbox. The error wraps [sandbox.NotFound] if there
// is no such source.
func (b *Bench) Copy(ctx context.Context, c Copy) error {
	root, err := os.OpenRoot(c.From)
	if err != nil {
		return err
	}
	d := &directory{root: root, files: root.FS()}
	defer d.close()
	source := path.Clean(c.Source)
	if !fs.ValidPath(source) {
		return sandbox.Errorf(sandbox.Invalid, "%s leads out of the files to copy", shorten(c.Source))
	}
	return b.copy(ctx, d, []string{source}, c.To, c.Owner, c.Mode)
}

// copy copies sources of a directory to the path to in the image.
func (b *Bench) copy(ctx context.Context, d *directory, sources []string, to, owner string, mode int64) error {
	into := strings.HasSuffix(to, "/")
	fi, err := d.root.Stat(sources[0])
	if errors.Is(err, fs.ErrNotExist) {
		return missingSource(sources[0])
	}
	if err != nil {
		return err
	}
	if err := b.need(ctx); err != nil {
		return err
	}
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := d.pack(w, sources, mode)
		w.CloseWithError(err)
		packed <- err
	}()
	err = b.Sandboxes.Unpack(ctx, b.Principal, b.sandbox, r, sandbox.UnpackTo{
		Path: path.Clean(to), File: len(sources) == 1 && !into && !fi.IsDir(), Owner: owner,
	})
	r.CloseWithError(io.ErrClosedPipe)
	if packErr := <-packed; packErr != nil && !errors.Is(packErr, io.ErrClosedPipe) {
		return packErr
	}
	return err
}

// Finish makes the image of the base, the changes in the sandbox and Config.
func (b *Bench) Finish(ctx context.Context) (sandbox.Image, error) {
	order := driver.ImageExtension{Base: b.base, Name: b.Name, By: b.By, Config: b.Config}
	if b.sandbox != "" {
		layer, err := b.Sandboxes.Layer(ctx, b.Principal, b.sandbox)
		if err != nil {
			return sandbox.Image{}, err
		}
		defer layer.Close()
		order.Layer = layer
	}
	return b.Images.ExtendImage(ctx, order)
}

// Close stops the sandbox, even if ctx has ended.
func (b *Bench) Close(ctx context.Context) error {
	if b.sandbox == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	if err := b.Sandboxes.Stop(ctx, b.Principal, b.sandbox); !errors.Is(err, sandbox.NotFound) {
		return err
	}
	return nil
}
