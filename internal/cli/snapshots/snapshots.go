// Package snapshots has the commands snapshot, fork and rollback.
//
// Only the command line imports it.
package snapshots

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/control"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Commands makes the commands, with the parts of the command line that they need.
type Commands struct {
	console.Streams
	// With calls f with the configured system.
	With func(ctx context.Context, f func(*app.System) error) error
	// AddJSON adds the flag --json, and JSON returns its value.
	AddJSON func(*cobra.Command)
	JSON    func() bool
}

// Snapshot returns the command snapshot.
func (k Commands) Snapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Take, list and remove snapshots of sandboxes",
		Long: `Take, list and remove snapshots of sandboxes. A snapshot is the state of a sandbox at
one moment: its programs with their memory, and its files outside of a workspace.
glovebox rollback returns to it, as often as you want. Snapshots are removed after 7
days.

A snapshot of the disk has only the files, and no sandbox is rolled back to it: its use
is to make other sandboxes. The drivers docker and podman keep only such snapshots. The
driver e2b keeps snapshots with memory, and rolls no sandbox back.`,
	}
	cmd.AddCommand(k.create(), k.list(), k.remove())
	return cmd
}

// exactly checks the number of arguments of a command.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return sandbox.WithHint(console.UsageError("%s needs %s, but has %d arguments", cmd.Name(), what, len(args)), "glovebox ps lists sandboxes, and glovebox snapshot ls snapshots")
	}
}

// do does an action with a sandbox, and says or prints the result.
func (k Commands) do(ctx context.Context, id string, req control.SnapshotRequest, say func(control.SnapshotAnswer)) error {
	return k.With(ctx, func(sys *app.System) error {
		a, err := sys.Snapshot(ctx, sandbox.CanonicalID(id), req)
		if err != nil {
			return err
		}
		if k.JSON() {
			return k.PrintJSON(a)
		}
		say(a)
		return nil
	})
}

func (k Commands) create() *cobra.Command {
	var name string
	var disk bool
	cmd := &cobra.Command{
		Use:   "create [flags] SANDBOX",
		Short: "Take a snapshot of a sandbox",
		Long: `Take a snapshot of a sandbox of a running server, and print its ID. The sandbox goes
on, but its connections to the network end. It must have no runs. With --disk, the
snapshot has the files that programs changed, without memory and programs, and no
connections end.`,
		Example: `  glovebox snapshot create --name before-upgrade sbx_k3v5...
  glovebox snapshot create --disk --name installed sbx_k3v5...`,
		Args: exactly(1, "one sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return k.do(cmd.Context(), args[0], control.SnapshotRequest{Action: control.SnapshotTake, Name: name, Disk: disk}, func(a control.SnapshotAnswer) {
				fmt.Fprintln(k.Out, a.Snapshot.ID)
				what := ""
				if a.Snapshot.Disk {
					what = ", files without memory"
				}
				k.Say("%s of %s%s", a.Snapshot.Size(), a.Snapshot.Sandbox, what)
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "a `name`, by which the snapshot's owner can use it")
	cmd.Flags().BoolVar(&disk, "disk", false, "keep only files, without memory and programs")
	k.AddJSON(cmd)
	return cmd
}

func (k Commands) list() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls",
		Aliases: []string{"list"},
		Short:   "List all snapshots, the newest first",
		Args:    exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return k.With(cmd.Context(), func(sys *app.System) error {
				list, err := sys.Snapshots(cmd.Context())
				if err != nil {
					return err
				}
				if k.JSON() {
					out := []sandbox.Snapshot{}
					for _, s := range list {
						out = append(out, s.Snapshot)
					}
					return k.PrintJSON(out)
				}
				if len(list) == 0 {
					k.Say("no snapshots")
					return nil
				}
				w := tabwriter.NewWriter(k.Out, 0, 0, 2, ' ', 0)
				fmt.Fprintln(w, "SNAPSHOT\tNAME\tOWNER\tSANDBOX\tPARENT\tSIZE\tSTATE\tHAS\tCREATED")
				for _, s := range list {
					fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.ID, dash(s.Name), s.Principal, s.Sandbox, dash(s.Parent),
						s.Size(), s.State, has(s.Disk), s.Created.Local().Format(time.DateTime))
				}
				return w.Flush()
			})
		},
	}
	k.AddJSON(cmd)
	return cmd
}

// has names what a snapshot has.
func has(disk bool) string {
	if disk {
		return "files"
	}
	return "memory"
}

// dash returns a text for a column of a table. Users choose names.
func dash(s string) string {
	if s == "" {
		return "-"
	}
	for _, r := range s {
		if r < ' ' || r > '~' {
			return fmt.Sprintf("%q", s)
		}
	}
	return s
}

func (k Commands) remove() *cobra.Command {
	return &cobra.Command{
		Use:   "rm SNAPSHOT",
		Short: "Remove a snapshot",
		Long:  `Remove a snapshot of any principal. Sandboxes that were made of it are not touched.`,
		Args:  exactly(1, "one snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return k.With(cmd.Context(), func(sys *app.System) error {
				if err := sys.RemoveSnapshot(cmd.Context(), args[0]); err != nil {
					return err
				}
				k.Say("removed %s", args[0])
				return nil
			})
		},
	}
}

// Fork returns the command fork.
func (k Commands) Fork() *cobra.Command {
	var req sandbox.ForkRequest
	cmd := &cobra.Command{
		Use:   "fork [flags] SANDBOX",
		Short: "Copy a running sandbox",
		Long: `Copy a running sandbox of a server: programs, memory and files. Print the ID of each
copy. The sandbox goes on, but its connections to the network end. It must have no
runs. If it has a workspace, each copy has a new one: empty, or a copy. With --disk, a
copy has the files that programs changed, without memory and programs.`,
		Example: `  glovebox fork --count 3 --copy-workspace sbx_k3v5...`,
		Args:    exactly(1, "one sandbox"),
		RunE: func(cmd *cobra.Command, args []string) error {
			var problems []string
			err := k.do(cmd.Context(), args[0], control.SnapshotRequest{Action: control.SnapshotFork, Fork: req}, func(a control.SnapshotAnswer) {
				for _, id := range a.Copies {
					fmt.Fprintln(k.Out, id)
				}
				problems = a.Problems
			})
			if err == nil && len(problems) > 0 {
				err = sandbox.Errorf(sandbox.Unavailable, "%d copies could not be made: %s", len(problems), problems[0])
			}
			return err
		},
	}
	cmd.Flags().IntVar(&req.Count, "count", 1, "the `number` of copies")
	cmd.Flags().BoolVar(&req.Disk, "disk", false, "copy only files, without memory and programs")
	cmd.Flags().BoolVar(&req.CopyWorkspace, "copy-workspace", false, "give each copy a copy of the workspace, instead of an empty one")
	k.AddJSON(cmd)
	return cmd
}

// Rollback returns the command rollback.
func (k Commands) Rollback() *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:   "rollback [flags] SANDBOX SNAPSHOT",
		Short: "Give a sandbox the state of a snapshot",
		Long: `Give a sandbox of a running server the state of a snapshot of its owner. What its
programs did since is lost, except in its workspace. The sandbox keeps its ID.`,
		Example: `  glovebox rollback sbx_k3v5... before-upgrade`,
		Args:    exactly(2, "a sandbox and a snapshot"),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := control.SnapshotRequest{Action: control.SnapshotRollback, Ref: args[1], End: end}
			return k.do(cmd.Context(), args[0], req, func(a control.SnapshotAnswer) {
				k.Say("%s has the state of %s again", sandbox.CanonicalID(args[0]), a.Snapshot.ID)
			})
		},
	}
	cmd.Flags().BoolVar(&end, "stop-runs", false, "end the sandbox's runs first")
	k.AddJSON(cmd)
	return cmd
}
