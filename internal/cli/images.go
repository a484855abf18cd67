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
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) imagesCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "images",
		Short: "Fetch, list and remove images",
		Long: `Fetch, list, build and remove images. An image is a root filesystem for sandboxes.
The image host is this machine's own system directories.

The embedded driver keeps images in the state directory and needs no container
engine. With Docker or Podman, the commands show and change the images of that
engine. If a sandbox names an image that is not here, Glovebox fetches it.`,
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

// named checks that there is exactly one argument.
func named(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return sandbox.WithHint(console.UsageError("%s needs one argument, but has %d", cmd.CommandPath(), len(args)), "call it as %s", cmd.UseLine())
	}
	return nil
}

func (p *program) imagesPullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull IMAGE",
		Short: "Fetch an image from a registry",
		Long: `Fetch an image from a registry, or its changed parts. A name without a registry
means docker.io, and a name without a tag means :latest. Pull uses the credentials
of docker login and podman login. After an error or a cancellation, the next pull
continues with the parts that are missing.

A label of an image can say that it runs a language. Such an image then runs the
code of every user of this server in that language.`,
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
					p.Say("no images except host")
					return nil
				}
				if p.flags.json {
					return p.PrintJSON(append([]sandbox.Image{}, list...))
				}
				now := time.Now()
				var rows [][]string
				for _, i := range list {
					used := "-" // container engines do not record it
					if !i.Used.IsZero() {
						used = console.Approximately(now.Sub(i.Used))
					}
					rows = append(rows, []string{i.Name, shortID(i.ID), sandbox.FormatBytes(i.SizeBytes), used})
				}
				return p.PrintTable([]string{"IMAGE", "ID", "SIZE", "USED"}, rows)
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
		Short: "Print the details of an image, as JSON",
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
					return sys.SuggestImage(ctx, args[0], err)
				}
				return p.PrintJSON(i)
			})
		},
	}
}

func (p *program) imagesLoadCommand() *cobra.Command {
	var name string
	var docker bool
	cmd := &cobra.Command{
		Use:   "load FILE|DIRECTORY|-",
		Short: "Load images from an archive or from Docker",
		Long: `Load images from a file of docker save or podman save, or from an archive or a
directory in OCI layout. With -, Load reads standard input. With --docker, it
copies an image from the Docker engine on this machine.`,
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
	cmd.Flags().StringVar(&name, "name", "", "`name` of the image, if the archive has exactly one")
	cmd.Flags().BoolVar(&docker, "docker", false, "copy the image of that name from Docker")
	p.addJSON(cmd)
	return cmd
}

func (p *program) imagesAdoptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "adopt IMAGE",
		Short: "Let an image that is here run every user's code",
		Long: `Make an image that is here an image of the operator. The commands pull, load and
build do the same for their images.

A label of an image can say that it runs a language. If the image is the
operator's, it then runs the code of every user of this server in that language.
An image that one user pulled runs only that user's code. An image from before
Glovebox recorded users of images runs code only if a request names it.`,
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
		Use:        "rm IMAGE...",
		SuggestFor: []string{"remove", "delete"},
		Short:      "Remove images",
		Long: `Remove images by name, by digest, or by the beginning of their ID. Running
sandboxes of the images continue.`,
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
				removed := false
				for _, ref := range args {
					n, err := k.RemoveImage(ctx, ref)
					freed += n
					removed = removed || err == nil
					errs = append(errs, sys.SuggestImage(ctx, ref, err))
				}
				if removed {
					p.Say("%s freed", sandbox.FormatBytes(freed))
				}
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
		Short: "Remove images and data that are not needed",
		Long: `Remove data that belongs to no image, such as the parts of unfinished fetches.
With --unused, also remove images from which no sandbox was made for that long.
Images that were loaded or built here are kept, because they cannot be fetched
again; --all removes them too.

Glovebox itself removes images of registries when all images together take more
space than images.space in the configuration.`,
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
					if err := p.Print("%s\n", n); err != nil {
						return err
					}
				}
				p.Say("%s freed", sandbox.FormatBytes(freed))
				return nil
			})
		},
	}
	cmd.Flags().Var(&unused, "unused", "also remove images that were not used for this `time`, such as 720h")
	cmd.Flags().BoolVar(&all, "all", false, "remove every image, also loaded and built ones")
	return cmd
}

// printImages prints the names and digests of images.
func (p *program) printImages(images ...sandbox.Image) error {
	if p.flags.json {
		return p.PrintJSON(images)
	}
	for _, i := range images {
		if err := p.Print("%s %s %s\n", i.Name, i.Digest, shortID(i.ID)); err != nil {
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
	return sys.SuggestImage(ctx, ref, err)
}

// progressLook is the interval between updates of the progress.
const progressLook = 100 * time.Millisecond

// imageProgress returns a function that shows progress on a terminal, and a
// function that clears it. Without a terminal, it only prints one line when a
// fetch begins.
func (p *program) imageProgress(name string) (progress func(sandbox.ImageProgress), done func()) {
	_, isTerminal := console.Terminal(p.Err)
	var last time.Time
	step, said := "", false
	progress = func(now sandbox.ImageProgress) {
		if !isTerminal {
			if step != now.Step && now.Step == "fetch" {
				p.Say("fetching %s", name)
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
