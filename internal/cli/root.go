package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/install"
	"github.com/glovebox-dev/glovebox/internal/cli/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "glovebox",
		Short: "Run untrusted code in sealed sandboxes",
		Long: `Run code that you do not trust in sealed Linux sandboxes: for AI agents over MCP,
and for you on the command line.

A sandbox has its own kernel and enforced limits. It has no network and cannot
see your files or your environment. It starts in a fraction of a second and
leaves nothing behind.`,
		Example: `  glovebox run -c 'print(6*7)'        run a line of Python
  glovebox run script.js              run a file; the language is guessed
  glovebox shell                      look around inside a sandbox
  glovebox mcp                        serve an MCP client over stdio
  glovebox serve                      serve MCP clients over HTTP
  glovebox doctor                     check whether sandboxes work on this machine`,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              noCommand,
		Version:           Version(),
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetVersionTemplate(versionLine())
	root.SetUsageTemplate(usageTemplate(root.UsageTemplate()))
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// For an unknown command, report the command, not its flags.
		if args := cmd.Flags().Args(); cmd.HasSubCommands() && len(args) > 0 {
			return noCommand(cmd, args)
		}
		if code := cmd.Flag("code"); code != nil && code.Changed {
			return sandbox.WithHint(console.UsageError("%w", err), "put -- before arguments of the program, or see the flags with %s --help", cmd.CommandPath())
		}
		return sandbox.WithHint(console.UsageError("%w", err), "see the flags with %s --help", cmd.CommandPath())
	})

	f := root.PersistentFlags()
	f.StringVar(&p.flags.config, "config", "", "configuration `file`; see glovebox help config")
	f.StringVar(&p.flags.driver, "driver", "", "`name` of the driver that makes sandboxes: auto, or a name in the list of glovebox doctor (GLOVEBOX_DRIVER)")
	f.StringVar(&p.flags.requireIsolation, "require-isolation", "", "with `kernel`, refuse sandboxes without their own kernel; default any (GLOVEBOX_REQUIRE_ISOLATION)")
	f.StringVar(&p.flags.stateDir, "state-dir", "", "`directory` for sandboxes, workspaces, images and logs (GLOVEBOX_STATE_DIR)")
	f.StringVar(&p.flags.logLevel, "log-level", "", "lowest `level` to log: debug, info, warn or error (GLOVEBOX_LOG_LEVEL)")
	f.StringVar(&p.flags.allowUnenforced, "allow-unenforced", "", "accept sandboxes for which this machine cannot enforce these `limits`: cpu,memory,processes,disk")
	f.StringVar(&p.flags.runners, "runners", "", "`directory` of YAML files that add or replace languages (GLOVEBOX_RUNNERS)")
	f.StringSliceVar(&p.flags.allowNetwork, "allow-network", nil, "widest network `rules` that a sandbox may ask for, as for run --network (GLOVEBOX_ALLOW_NETWORK)")
	f.Var(secretFlag{&p.flags.secrets}, "secret", "secret that programs can use but never see: `NAME` is its environment variable, here and in the sandbox; NAME=@FILE reads it from a file; NAME=VALUE shows it to other users of this machine")
	f.Var(hostFlag{&p.flags.secrets}, "secret-host", "`host` that receives the preceding --secret, in headers of HTTPS requests")
	f.Var(headerFlag{&p.flags.secrets}, "secret-header", "`header` in which the preceding --secret may be sent; default: the usual headers for keys")

	f.Var(&p.flags.networkRate, "network-rate", "limit of bytes per second that a sandbox sends, and that it receives, such as 10MiB (GLOVEBOX_NETWORK_RATE)")
	f.Var(&p.flags.networkTotal, "network-total", "limit of bytes that a sandbox sends and receives in total (GLOVEBOX_NETWORK_TOTAL)")
	f.Lookup("network-rate").DefValue, f.Lookup("network-total").DefValue = "", ""
	f.Var(&p.flags.workspaceTTL, "workspace-ttl", "remove workspaces that were not used for this time, such as 720h; default never (GLOVEBOX_WORKSPACE_TTL)")
	f.Lookup("workspace-ttl").DefValue = ""

	setup := install.Commands{Streams: p.Streams, Load: p.load, Options: p.options, ConfigFlag: func() string { return p.flags.config }}
	states := snapshots.Commands{Streams: p.Streams, With: p.with, AddJSON: p.addJSON, JSON: func() bool { return p.flags.json }}
	root.AddCommand(
		p.runCommand(), p.shellCommand(), p.languagesCommand(),
		p.psCommand(), p.runsCommand(), p.logsCommand(), p.replayCommand(), p.networkCommand(), p.forwardCommand(), p.stopCommand(), p.hibernateCommand(), p.imagesCommand(), p.workspaceCommand(), p.cpCommand(), p.diffCommand(), states.Snapshot(), states.Fork(), states.Rollback(),
		p.mcpCommand(), p.serveCommand(), p.openCommand(), p.tokenCommand(), p.usageCommand(), p.limitCommand(), p.groupCommand(), p.forgetCommand(), p.auditCommand(),
		p.doctorCommand(), p.benchCommand(), setup.Install(), setup.Uninstall(), p.updateCommand(), p.versionCommand(),
		p.configCommand(), p.installGuestCommand(), p.probeNetworkCommand(),
	)
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "help" {
			cmd.Run, cmd.RunE = nil, help
		}
	}
	return root
}

// inheritedFlags is the part of cobra's template with the flags of all commands.
const inheritedFlags = `{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}`

// usageTemplate returns cobra's template without the list of global flags. Few
// commands use many of them, and the list is longer than most commands' own.
func usageTemplate(cobras string) string {
	return strings.Replace(strings.Replace(cobras, "Global Flags:\n", "", 1), inheritedFlags,
		"The global flags apply, too: see them with {{.Root.Name}} --help.", 1)
}

// help prints the help of a command. Unlike cobra's own command, it fails if the
// command does not exist.
func help(cmd *cobra.Command, args []string) error {
	of, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	if of.HasSubCommands() && len(rest) > 0 {
		return noCommand(of, rest)
	}
	of.InitDefaultHelpFlag()
	return of.Help()
}

// addJSON adds the --json flag of commands that print data.
func (p *program) addJSON(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&p.flags.json, "json", false, "print JSON")
}

// between checks that the number of arguments is between least and most.
func between(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return sandbox.WithHint(console.UsageError("%s has %d arguments, which is a wrong number", cmd.CommandPath(), len(args)),
			"call it as %s", cmd.UseLine())
	}
}

// noArgs checks that there are no arguments.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return sandbox.WithHint(console.UsageError("%s takes no arguments, but has %q", cmd.CommandPath(), args[0]),
			"see %s --help", cmd.CommandPath())
	}
	return nil
}

// noCommand checks the arguments of a command that has only subcommands.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	name := strings.TrimPrefix(cmd.CommandPath()+" "+args[0], cmd.Root().Name()+" ")
	hint := fmt.Sprintf("see the commands with %s --help", cmd.CommandPath())
	cmd.SuggestionsMinimumDistance = min(2, len(args[0])-1)
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		hint = fmt.Sprintf("did you mean %s %s? Otherwise, %s", cmd.CommandPath(), like[0], hint)
	}
	return sandbox.WithHint(console.UsageError("there is no command %q", name), "%s", hint)
}
