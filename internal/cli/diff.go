package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/screen"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) diffCommand() *cobra.Command {
	var since string
	var patch bool
	cmd := &cobra.Command{
		Use:   "diff [flags] SANDBOX[:PATH]",
		Short: "Show the changes of a sandbox's files",
		Long: `Show the changes of files in a sandbox as git diff does. Files that came by
glovebox cp or the tool copy_in count from their last copy, other files from the
start of the sandbox. PATH is a directory or a file in /data, in the home directory,
or in another directory in which a command ran; there, files count from the start of
the first command. The default is /data, and names are relative to PATH. Files that
.gitignore names are left out, and so are .git and installed packages.

With --patch, print a patch for git apply, in which binary files are whole. It fails
if a change cannot be in it, such as of a file with more than 8 MiB. Read a patch
before you apply it: a program in the sandbox may have written anything.

Like cp, diff works with sandboxes that a server left behind when it ended.`,
		Example: `  glovebox diff sbx_k3v5...
  glovebox diff --since run_7mq2... sbx_k3v5...
  glovebox diff --patch sbx_k3v5...:/data/project | git apply`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("diff needs one sandbox, but has %d arguments", len(args)), "list sandboxes with glovebox ps")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			id, path, ok := inSandbox(args[0])
			if !ok {
				id, path = sandbox.CanonicalID(args[0]), ""
			}
			if !sandbox.ValidID(id) {
				return sandbox.WithHint(console.UsageError("%q is not the ID of a sandbox", id), "glovebox ps lists them")
			}
			if patch && p.flags.json {
				return console.UsageError("--patch: cannot be combined with --json")
			}
			sys, err := p.open(cmd.Context(), func(o *app.Options) { o.Detached = true })
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			return p.showChanges(cmd.Context(), sys, id, sandbox.DiffRequest{Path: path, Since: since, Patch: patch})
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "show the changes since the start of this `run`, one of the last 100")
	cmd.Flags().BoolVar(&patch, "patch", false, "print a patch for git apply")
	p.addJSON(cmd)
	return cmd
}

// showChanges prints the changes of a sandbox's files, answer by answer.
func (p *program) showChanges(ctx context.Context, sys *app.System, id string, r sandbox.DiffRequest) error {
	out := screen.NewText(p.Out)
	_, seen := console.Terminal(p.Out)
	left := 0
	for {
		d, err := sys.Diff(ctx, id, r)
		if err != nil {
			return err
		}
		if p.flags.json {
			return p.PrintJSON(d)
		}
		// Control characters do not reach a terminal.
		if seen {
			_, err = out.Write([]byte(d.Text))
		} else {
			_, err = p.Out.Write([]byte(d.Text))
		}
		if err != nil {
			return err
		}
		for _, f := range d.LeftOut {
			left++
			p.Say("left out: %s: %s", shownName(f.Path), shownName(f.Reason))
		}
		if d.Next != "" {
			r.After = d.Next
			continue
		}
		if seen {
			err = out.Close()
		}
		p.Say("%d created, %d modified, %d removed", d.Created, d.Modified, d.Removed)
		switch {
		case d.Incomplete:
			p.Say("%s, and nothing after %s was looked at", d.Reason, shownName(d.At))
			if r.Patch {
				err = errors.Join(err, sandbox.Errorf(sandbox.Exhausted, "the patch is incomplete: %s", d.Reason))
			}
		case left > 0 && r.Patch:
			err = errors.Join(err, sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the patch is incomplete: it lacks %d changed files", left), "copy them with glovebox cp"))
		}
		return err
	}
}
