package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Fetch, list and remove images",
		Long: `Images manages the root filesystems that sandboxes can have beside host, which
is this machine's own. The embedded driver needs no engine for it and keeps them
in the state directory; of Docker and Podman it shows what they keep. A sandbox
that names an image that is not here fetches it.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.imagesPullCommand(), p.imagesListCommand(), p.imagesInspectCommand(), p.imagesLoadCommand(), p.imagesBuildCommand(), p.imagesAdoptCommand(),
		p.imagesRemoveCommand(), p.imagesPruneCommand())
	return cmd
}

// withImages calls f with a system that does no background work.
func (p *program) withImages(cmd *cobra.Command, f func(ctx context.Context, sys *app.System) error) (err error) {
	sys, err := p.open(cmd.Context(), func(o *app.Options) { o.Passive, o.CommandLine = true, true })
	if err != nil {
		return err
	}
	defer p.close(cmd.Context(), sys, &err)
	return f(cmd.Context(), sys)
}

// named checks that there is exactly one argument, an image.
func named(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return sandbox.WithHint(usageError("%s takes one image", cmd.CommandPath()), "%s --help shows how it is called", cmd.CommandPath())
	}
	return nil
}

func (p *program) imagesPullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Fetch an image from a registry",
		Long: `Pull fetches an image, or what is new of it. A name without a registry is one
of docker.io's, and a name without a tag means :latest. Credentials are those
that docker login and podman login left. What was fetched when it broke off, or
was cancelled, is not fetched again. If the image names itself the runner of a
language, it runs the code of every user of this server.`,
		Example: `  glovebox images pull python:3.12-slim-bookworm
  glovebox images pull ghcr.io/owner/name@sha256:0123...`,
		Args: named,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				progress, done := p.imageProgress(args[0])
				i, err := sys.Engine.PullImage(ctx, args[0], progress)
				done()
				if err != nil {
					return err
				}
				return p.printImages(i)
			})
		},
	}
	p.addJSON(cmd)
	return cmd
}

func (p *program) imagesListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images that are here",
		Example: `  glovebox images list
  glovebox images list --json | jq -r '.[].name'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				k, err := sys.Images()
				if err != nil {
					return err
				}
				list, err := k.Images(ctx)
				if err != nil {
					return err
				}
				slices.SortFunc(list, func(a, b sandbox.Image) int { return strings.Compare(a.Name, b.Name) })
				if len(list) == 0 && !p.flags.json {
					p.say("no images beside host")
					return nil
				}
				if p.flags.json {
					return p.printJSON(append([]sandbox.Image{}, list...))
				}
				now := time.Now()
				var rows [][]string
				for _, i := range list {
					used := "-" // container engines do not record it
					if !i.Used.IsZero() {
						used = approximately(now.Sub(i.Used))
					}
					rows = append(rows, []string{i.Name, shortID(i.ID), sandbox.FormatBytes(i.SizeBytes), used})
				}
				return p.printTable([]string{"IMAGE", "ID", "SIZE", "USED"}, rows)
			})
		},
	}
	p.addJSON(cmd)
	return cmd
}

// shortID returns the first 12 digits of an ID.
func shortID(id string) string {
	_, digits, _ := strings.Cut(id, ":")
	return digits[:min(12, len(digits))]
}

func (p *program) imagesInspectCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "inspect IMAGE",
		Short: "Print what is known of an image, as JSON",
		Example: `  glovebox images inspect python:3.12-slim-bookworm
  glovebox images inspect 0123456789ab | jq .config.labels`,
		Args: named,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				k, err := sys.Images()
				if err != nil {
					return err
				}
				i, err := k.Image(ctx, args[0])
				if err != nil {
					return err
				}
				return p.printJSON(i)
			})
		},
	}
}

func (p *program) imagesLoadCommand() *cobra.Command {
	var name string
	var docker bool
	cmd := &cobra.Command{
		Use:   "load FILE|DIRECTORY|-",
		Short: "Take images from an archive, or from Docker",
		Long: `Load takes in the images of a file that docker save or podman save made, or of
an archive or a directory in OCI layout; - reads standard input. With --docker
it takes an image over from the Docker engine on this machine.`,
		Example: `  glovebox images load images.tar
  glovebox images load --name mine:latest oci-layout/
  docker save mine | glovebox images load -
  glovebox images load --docker mine:latest`,
		Args: named,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				progress, done := p.imageProgress(args[0])
				var list []sandbox.Image
				var err error
				switch {
				case docker:
					list, err = sys.LoadDockerImage(ctx, p.Getenv("DOCKER_HOST"), args[0], progress)
				case args[0] == "-":
					list, err = sys.LoadImages(ctx, "", p.In, name, progress)
				default:
					list, err = sys.LoadImages(ctx, args[0], nil, name, progress)
				}
				done()
				if err != nil {
					return err
				}
				return p.printImages(list...)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "what to call the image, if the archive has just one")
	cmd.Flags().BoolVar(&docker, "docker", false, "take the image of that name from Docker")
	p.addJSON(cmd)
	return cmd
}

func (p *program) imagesAdoptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "adopt IMAGE",
		Short: "Let an image that is here run every user's code",
		Long: `Adopt makes an image that is here the operator's, as pull, load and build do. An
image of the operator that names itself the runner of a language runs the code of
every user of this server. An image that one user had pulled runs that user's code
only. An image from before Glovebox recorded users of images runs no code unless
its name is given.`,
		Example: `  glovebox images adopt ghcr.io/owner/ruby-runner:1`,
		Args:    named,
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				i, err := sys.AdoptImage(ctx, args[0])
				if err != nil {
					return err
				}
				return p.printImages(i)
			})
		},
	}
}

func (p *program) imagesRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Rm removes images by name, by digest, or by the beginning of their ID. Sandboxes
that run go on.`,
		Example: `  glovebox images rm python:3.12-slim-bookworm`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return named(cmd, args)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				k, err := sys.Images()
				if err != nil {
					return err
				}
				var errs []error
				var freed int64
				for _, ref := range args {
					n, err := k.RemoveImage(ctx, ref)
					freed += n
					errs = append(errs, err)
				}
				p.say("%s freed", sandbox.FormatBytes(freed))
				return errors.Join(errs...)
			})
		},
	}
}

func (p *program) imagesPruneCommand() *cobra.Command {
	var unused config.Duration
	var all bool
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove what is not needed",
		Long: `Prune removes what no image has: what is left of fetches that were given up, for
one. With --unused it also removes images of which no sandbox was made for so
long, unless they were loaded or built here and so could not be fetched again.
Without being asked, images of registries are removed when all take more than
images.space in the configuration.`,
		Example: `  glovebox images prune
  glovebox images prune --unused 720h
  glovebox images prune --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withImages(cmd, func(ctx context.Context, sys *app.System) error {
				names, freed, err := sys.PruneImages(ctx, time.Duration(unused), all)
				if err != nil {
					return err
				}
				for _, n := range names {
					if err := p.print("%s\n", n); err != nil {
						return err
					}
				}
				p.say("%s freed", sandbox.FormatBytes(freed))
				return nil
			})
		},
	}
	cmd.Flags().Var(&unused, "unused", "also images that were not used for so `long`, like 720h")
	cmd.Flags().BoolVar(&all, "all", false, "every image, those too that were loaded or built here")
	return cmd
}

// printImages prints the names and digests of images.
func (p *program) printImages(images ...sandbox.Image) error {
	if p.flags.json {
		return p.printJSON(images)
	}
	for _, i := range images {
		if err := p.print("%s %s\n", i.Name, i.Digest); err != nil {
			return err
		}
	}
	return nil
}

// fetchImage fetches a missing image and shows the progress.
func (p *program) fetchImage(ctx context.Context, sys *app.System, ref string) error {
	if ref == "" || ref == sandbox.ImageHost {
		return nil
	}
	if _, err := sys.Images(); err != nil {
		return nil // the driver will report the problem
	}
	progress, done := p.imageProgress(ref)
	defer done()
	_, err := sys.Engine.FetchImage(ctx, sandbox.Local, ref, progress)
	return err
}

// progressLook is the interval between updates of the progress.
const progressLook = 100 * time.Millisecond

// imageProgress returns a function that shows progress on a terminal, and a
// function that clears it. Without a terminal, it only prints one line when a
// fetch begins.
func (p *program) imageProgress(name string) (progress func(sandbox.ImageProgress), done func()) {
	_, isTerminal := terminal(p.Err)
	var last time.Time
	step, said := "", false
	progress = func(now sandbox.ImageProgress) {
		if !isTerminal {
			if step != now.Step && now.Step == "fetch" {
				p.say("fetching %s", name)
			}
			step = now.Step
			return
		}
		if now.Step == step && time.Since(last) < progressLook {
			return
		}
		step, last, said = now.Step, time.Now(), true
		fmt.Fprintf(p.Err, "\r\x1b[K%s", now.Text(name))
	}
	return progress, func() {
		if said {
			fmt.Fprint(p.Err, "\r\x1b[K")
		}
	}
}
