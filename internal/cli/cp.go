package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) cpCommand() *cobra.Command {
	var ignore bool
	cmd := &cobra.Command{
		Use:   "cp FROM TO",
		Short: "Copy files between this machine and a sandbox or workspace",
		Long: `Copy a file or a directory between this machine and a sandbox, or a file between
this machine and a workspace. FROM or TO must be SANDBOX:PATH or WORKSPACE:PATH. A
directory is copied with its contents. Links that stay inside the directory are
copied as links; other links and special files are left out.

Cp works with sandboxes that a server left behind when it ended. To copy files of
a running server's sandbox, use that server, or the sandbox's workspace. For all
files of a workspace, use glovebox workspace export and glovebox workspace
import.`,
		Example: `  glovebox cp data:result.csv .
  glovebox cp input.csv data:
  glovebox cp project sbx_…:/data/project
  glovebox cp sbx_…:/data/result.csv .`,
		Args: between(2, 2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			from, fromPath, fromBox := inSandbox(args[0])
			to, toPath, toBox := inSandbox(args[1])
			_, _, fromSpace := inWorkspace(args[0])
			_, _, toSpace := inWorkspace(args[1])
			for _, arg := range args {
				name, _, _ := strings.Cut(arg, ":")
				if name != arg && strings.HasPrefix(name, sandboxPrefix) && !sandbox.ValidID(name) {
					return sandbox.WithHint(console.UsageError("%q is not the ID of a sandbox", name), "glovebox ps lists them")
				}
			}
			if (fromBox || fromSpace) == (toBox || toSpace) {
				return sandbox.WithHint(console.UsageError("FROM or TO must be SANDBOX:PATH or WORKSPACE:PATH, and not both"),
					"list them with glovebox ps and glovebox workspace list")
			}
			if !fromBox && !fromSpace {
				if _, err := os.Lstat(args[0]); errors.Is(err, fs.ErrNotExist) {
					return sandbox.WithHint(console.UsageError("FROM: there is no file %q on this machine", args[0]),
						"to copy from a sandbox or a workspace, write SANDBOX:PATH or WORKSPACE:PATH")
				}
			}
			if fromSpace || toSpace {
				return p.copyWorkspaceFile(cmd.Context(), args[0], args[1])
			}
			// Detached, so that it can take over sandboxes of a server that has
			// ended, and leaves them running.
			sys, err := p.open(cmd.Context(), func(o *app.Options) { o.Detached = true })
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			var n sandbox.Copied
			if toBox {
				n, err = sys.CopyIn(cmd.Context(), args[0], to, toPath, ignore)
			} else {
				n, err = sys.CopyOut(cmd.Context(), from, fromPath, args[1])
			}
			if err == nil {
				p.Say("copied %d files, %s", n.Files, sandbox.FormatBytes(n.Bytes))
				if n.Skipped > 0 {
					p.Say("left out %d special files and links that lead out of the directory", n.Skipped)
				}
				if len(n.ToolFiles) > 0 {
					p.Say("check these files: programs on this machine execute or obey them: %s", quoted(n.ToolFiles))
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&ignore, "gitignore", false, "leave out .git and the files that .gitignore files name")
	return cmd
}

// quoted quotes names, because a program in a sandbox chose them.
func quoted(names []string) string {
	shown := make([]string, len(names))
	for i, name := range names {
		shown[i] = fmt.Sprintf("%q", name)
	}
	return strings.Join(shown, ", ")
}

// sandboxPrefix begins the ID of a sandbox.
const sandboxPrefix = "sbx_"

// inSandbox parses SANDBOX:PATH.
func inSandbox(arg string) (id, path string, ok bool) {
	id, path, ok = strings.Cut(arg, ":")
	if id = sandbox.CanonicalID(id); !ok || !sandbox.ValidID(id) {
		return "", "", false
	}
	if path == "" {
		path = sandbox.WorkDir
	}
	return id, path, true
}
