package cli

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

type buildFlags struct {
	name, base, network string
	args                []string
	memory, disk        config.Bytes
	cpus                float64
}

// maxBuildStep is the timeout of one step of a build, unless the configured
// maximum of runs is longer.
const maxBuildStep = 2 * time.Hour

func (p *program) imagesBuildCommand() *cobra.Command {
	var f buildFlags
	cmd := &cobra.Command{
		Use:   "build DIRECTORY",
		Short: "Build an image from a Dockerfile",
		Long: `Build an image from the Dockerfile in a directory. The name of the image is
glovebox/DIRECTORY unless --name gives another. --base sets the build argument
BASE, with which the Dockerfiles in images/ begin.

The embedded driver needs no container engine. It runs the programs of the build
in a sandbox and makes one layer of their changes. It knows FROM (once), ARG, RUN,
COPY (with --chown and --chmod, and .dockerignore), ENV, WORKDIR, USER, LABEL,
EXPOSE, ENTRYPOINT and CMD. It refuses any other instruction. The programs have no
network unless --network allows one.

Docker and Podman build with their own builder. They get the files that
.dockerignore does not exclude.`,
		Example: `  glovebox images build --network internet images/python
  glovebox images build --base debian:bookworm-slim --network deb.debian.org images/go`,
		Args: named,
		RunE: func(cmd *cobra.Command, dirs []string) error {
			order, err := f.order(dirs[0])
			if err != nil {
				return err
			}
			p.flags.adjust = f.grant
			return p.build(cmd.Context(), order)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.name, "name", "", "`name` of the image")
	fs.StringVar(&f.base, "base", "", "base `image`")
	fs.StringVar(&f.network, "network", "", "`rules` for the network of the build, as for glovebox run; for Docker and Podman, a network mode such as host")
	fs.StringArrayVar(&f.args, "build-arg", nil, "set the build argument `NAME=VALUE`; may be repeated")
	fs.Var(&f.memory, "memory", "limit of memory of the build's sandbox; default 2GiB")
	fs.Var(&f.disk, "disk", "limit of disk space; default 16GiB")
	fs.Float64Var(&f.cpus, "cpus", 0, "limit of processor time in `CPUs`; default all")
	for _, name := range []string{"memory", "disk"} {
		fs.Lookup(name).DefValue = ""
	}
	p.addJSON(cmd)
	return cmd
}

// order returns the request for an image of the Dockerfile in dir.
func (f *buildFlags) order(dir string) (app.ImageBuild, error) {
	if f.name == "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return app.ImageBuild{}, err
		}
		f.name = "glovebox/" + strings.ToLower(filepath.Base(abs))
	}
	values := map[string]string{}
	for _, arg := range f.args {
		k, v, ok := strings.Cut(arg, "=")
		if !ok || k == "" {
			return app.ImageBuild{}, sandbox.WithHint(console.UsageError("--build-arg: %q is not NAME=VALUE", arg), "write it like PIP=numpy")
		}
		values[k] = v
	}
	if f.base != "" {
		values["BASE"] = f.base
	}
	return app.ImageBuild{
		Dir: dir, Name: f.name, Args: values, Network: f.network,
		Limits: sandbox.Limits{CPUs: f.cpus, MemoryBytes: int64(f.memory), DiskBytes: int64(f.disk)},
	}, nil
}

// grant allows the build's network and time. The user at the command line is the
// operator, so --network applies if the configuration has no network policy. A
// container engine's own network mode is not a rule, and needs no permission.
func (f *buildFlags) grant(c *config.Config) error {
	rules := strings.Split(f.network, ",")
	if _, err := sandbox.ParseNetwork(rules...); err == nil && len(c.Network.Allow) == 0 && f.network != "" {
		c.Network.Allow = rules
	}
	c.Run.MaxTimeout = max(c.Run.MaxTimeout, config.Duration(maxBuildStep))
	return nil
}

func (p *program) build(ctx context.Context, order app.ImageBuild) (err error) {
	sys, err := p.open(ctx, func(o *app.Options) { o.CommandLine = true })
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	p.sayFallback(sys)
	progress, done := p.imageProgress("the base image")
	order.Progress = progress
	i, err := sys.BuildImage(ctx, order, p.Err)
	done()
	if err != nil {
		return err
	}
	return p.printImages(i)
}
