package cli

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) uninstallCommand() *cobra.Command {
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
			env, err := p.clientEnvironment()
			if err != nil {
				return err
			}
			switch {
			case flags.everything && len(args) > 0:
				return usageError("--all is without names of clients: it removes Glovebox from all of them")
			case flags.yes && !flags.everything:
				return usageError("--yes needs --all")
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
				return p.removeAll(cmd.Context(), env, clients, flags)
			}
			err = p.removeFromClients(env, clients, flags)
			if err != nil || flags.print {
				return err
			}
			return p.sayKept(cmd.Context())
		},
	}
	flags.add(cmd)
	return cmd
}

func (p *program) removeFromClients(env clientconfig.Environment, clients []clientconfig.Client, flags installFlags) error {
	return p.changeClients(clients, flags, true, func(c clientconfig.Client) (clientconfig.Change, error) {
		if c.ByHand() {
			if !flags.all {
				p.say("%s: remove it by hand", c.Title)
			}
			return clientconfig.Change{}, nil
		}
		change, err := c.PlanRemoval(env, flags.scope(), flags.name)
		if flags.all && errors.Is(err, sandbox.Unsupported) {
			return clientconfig.Change{}, nil
		}
		return change, err
	})
}

// sayKept reports the files that uninstall keeps, and the live sandboxes.
func (p *program) sayKept(ctx context.Context) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	_, err = os.Stat(c.StateDir)
	file := p.configFile()
	if err == nil {
		p.say("kept: %s, with workspaces and logs", c.StateDir)
	}
	if file != "" {
		p.say("kept: %s, the configuration", file)
	}
	p.sayProgram()
	if err == nil || file != "" {
		p.say("to remove all of this except the program: glovebox uninstall --all")
	}
	_, live, err := app.CheckRemoval(ctx, c)
	if err != nil && !errors.Is(err, sandbox.Conflict) {
		p.say("warning: %v", err) // uninstall --all would refuse
	}
	switch {
	case live == 1:
		p.say("1 sandbox runs: glovebox stop --all ends it")
	case live > 1:
		p.say("%d sandboxes run: glovebox stop --all ends them", live)
	}
	return nil
}

func (p *program) sayProgram() {
	if program, err := ownPath(); err == nil {
		p.say("kept: %s, the program", program)
	}
}

// configFile returns the path of the default configuration file if the file exists.
func (p *program) configFile() string {
	file := config.DefaultFile(p.Getenv)
	if _, err := os.Lstat(file); file == "" || err != nil {
		return ""
	}
	return file
}

// removeAll is uninstall --all. It changes nothing unless it may remove everything.
func (p *program) removeAll(ctx context.Context, env clientconfig.Environment, clients []clientconfig.Client, flags installFlags) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	exists, live, err := app.CheckRemoval(ctx, c)
	if err != nil {
		return err
	}
	file := p.configFile()
	p.say("uninstall --all takes Glovebox out of all MCP clients, and removes:")
	if live > 0 {
		p.say("  sandboxes: %d", live)
	}
	if exists {
		p.say("  %s, with workspaces, images, logs and tokens", c.StateDir)
	}
	if file != "" {
		p.say("  %s", file)
	}
	for _, client := range clients {
		backups, err := client.Backups(env, flags.scope(), flags.name)
		if err != nil {
			return err
		}
		for _, path := range backups {
			p.say("  %s", path)
		}
	}
	if flags.print {
		return p.removeFromClients(env, clients, flags)
	}
	if !flags.yes {
		if _, ok := terminal(p.In); !ok {
			return sandbox.WithHint(usageError("uninstall --all asks at a terminal, and this is none"), "pass --yes to remove without asking")
		}
		if err := p.agree("remove all of this?"); err != nil {
			return err
		}
	}
	removed := func(what string) { p.say("removed: %s", what) }
	err = p.removeFromClients(env, clients, flags)
	if exists {
		opts := app.Options{Config: c, Log: p.logger(c), Version: Version(), TestDrivers: p.testDrivers, TestAuto: p.testAuto}
		err = errors.Join(err, app.RemoveState(ctx, opts, removed))
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
		p.say("kept: %s, with workspaces", c.Workspace.Dir)
	}
	if other := cmp.Or(p.flags.config, p.Getenv(config.EnvFile)); other != "" && other != file {
		p.say("kept: %s, the configuration that --config or %s names", other, config.EnvFile)
	}
	p.sayProgram()
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
