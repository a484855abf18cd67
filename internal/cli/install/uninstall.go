package install

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Uninstall returns the command uninstall.
func (k Commands) Uninstall() *cobra.Command {
	var flags installFlags
	cmd := &cobra.Command{
		Use:   "uninstall [CLIENT... | --all]",
		Short: "Remove Glovebox from the configuration of MCP clients, or everything",
		Long: `Remove Glovebox from the configuration of the named MCP clients, or of all clients
that have it. Uninstall changes nothing else in a file, and keeps a copy of the
old file beside it. It removes a file that install made and that has no other
content. It keeps the state directory (workspaces and logs), the configuration
file and the program, and prints where they are.

With --all, uninstall then stops all sandboxes, and removes the state directory,
the configuration file and the copies of clients' files. It asks first, and
refuses while a server or a command uses the state directory. It removes no
directory with files that are not Glovebox's, and follows no links. The program
stays.`,
		Example: `  glovebox uninstall
  glovebox uninstall cursor --print
  glovebox uninstall --all`,
		RunE: func(cmd *cobra.Command, args []string) error {
			env, err := k.clientEnvironment()
			if err != nil {
				return err
			}
			switch {
			case flags.everything && len(args) > 0:
				return console.UsageError("--all is without names of clients: it removes Glovebox from all of them")
			case flags.yes && !flags.everything:
				return console.UsageError("--yes needs --all")
			}
			flags.all = len(args) == 0
			clients, err := findClients(args)
			if err != nil {
				return err
			}
			if flags.all {
				clients = clientconfig.Clients()
			}
			if flags.everything {
				return k.removeAll(cmd.Context(), env, clients, flags)
			}
			err = k.removeFromClients(env, clients, flags)
			if err != nil || flags.print {
				return err
			}
			return k.sayKept(cmd.Context())
		},
	}
	flags.add(cmd)
	return cmd
}

func (k Commands) removeFromClients(env clientconfig.Environment, clients []clientconfig.Client, flags installFlags) error {
	return k.changeClients(clients, flags, true, work{plan: func(c clientconfig.Client) (clientconfig.Change, error) {
		if c.ByHand() {
			if !flags.all {
				k.Say("%s: remove it by hand", c.Title)
			}
			return clientconfig.Change{}, nil
		}
		change, err := c.PlanRemoval(env, flags.scope(), flags.name)
		if flags.all && errors.Is(err, sandbox.Unsupported) {
			return clientconfig.Change{}, nil
		}
		return change, err
	}})
}

// sayKept reports the files that uninstall keeps, and the live sandboxes.
func (k Commands) sayKept(ctx context.Context) error {
	c, err := k.Load()
	if err != nil {
		return err
	}
	_, err = os.Stat(c.StateDir)
	file := k.configFile()
	if err == nil {
		k.Say("kept: %s, with workspaces and logs", c.StateDir)
	}
	if file != "" {
		k.Say("kept: %s, the configuration", file)
	}
	k.sayProgram()
	if err == nil || file != "" {
		k.Say("to remove all of this except the program: glovebox uninstall --all")
	}
	_, live, err := app.CheckRemoval(ctx, c)
	if err != nil && !errors.Is(err, sandbox.Conflict) {
		k.Say("warning: %v", err) // uninstall --all would refuse
	}
	switch {
	case live == 1:
		k.Say("1 sandbox runs: glovebox stop --all ends it")
	case live > 1:
		k.Say("%d sandboxes run: glovebox stop --all ends them", live)
	}
	return nil
}

func (k Commands) sayProgram() {
	if program, err := ownPath(); err == nil {
		k.Say("kept: %s, the program", program)
	}
}

// configFile returns the path of the default configuration file if the file exists.
func (k Commands) configFile() string {
	file := config.DefaultFile(k.Getenv)
	if _, err := os.Lstat(file); file == "" || err != nil {
		return ""
	}
	return file
}

// removeAll is uninstall --all. It changes nothing unless it may remove everything.
func (k Commands) removeAll(ctx context.Context, env clientconfig.Environment, clients []clientconfig.Client, flags installFlags) (err error) {
	c, err := k.Load()
	if err != nil {
		return err
	}
	exists, live, err := app.CheckRemoval(ctx, c)
	if err != nil {
		return err
	}
	file := k.configFile()
	k.Say("uninstall --all takes Glovebox out of all MCP clients, and removes:")
	if live > 0 {
		k.Say("  sandboxes: %d", live)
	}
	if exists {
		k.Say("  %s, with workspaces, images, logs and tokens", c.StateDir)
	}
	if file != "" {
		k.Say("  %s", file)
	}
	for _, client := range clients {
		backups, err := client.Backups(env, flags.scope(), flags.name)
		if err != nil {
			return err
		}
		for _, path := range backups {
			k.Say("  %s", path)
		}
	}
	if flags.print {
		return k.removeFromClients(env, clients, flags)
	}
	if !flags.yes {
		if _, ok := console.Terminal(k.In); !ok {
			return sandbox.WithHint(console.UsageError("uninstall --all asks at a terminal, and this is none"), "pass --yes to remove without asking")
		}
		if err := k.Agree("remove all of this?"); err != nil {
			return err
		}
	}
	var removal *app.Removal
	if exists { // before any change, so that nothing is removed by half
		if removal, err = app.BeginRemoval(ctx, k.Options(c)); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, removal.Close()) }()
	}
	removed := func(what string) { k.Say("removed: %s", what) }
	err = k.removeFromClients(env, clients, flags)
	if exists {
		err = errors.Join(err, removal.Run(ctx, removed))
	}
	if err == nil { // else the copies may still be needed
		for _, client := range clients {
			err = errors.Join(err, client.RemoveBackups(env, flags.scope(), flags.name, removed))
		}
	}
	if file != "" {
		err = errors.Join(err, removeConfig(file, removed))
	}
	if _, serr := os.Stat(c.Workspace.Dir); c.Workspace.Dir != "" && serr == nil {
		k.Say("kept: %s, with workspaces", c.Workspace.Dir)
	}
	if other := cmp.Or(k.ConfigFlag(), k.Getenv(config.EnvFile)); other != "" && other != file {
		k.Say("kept: %s, the configuration that --config or %s names", other, config.EnvFile)
	}
	k.sayProgram()
	return err
}

// removeConfig removes the configuration file, and its directory if that is empty
// then.
func removeConfig(file string, removed func(string)) error {
	if err := os.Remove(file); err != nil {
		return sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	removed(file)
	dir := filepath.Dir(file)
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return nil // another program's, or the user's own files
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	removed(dir)
	return nil
}
