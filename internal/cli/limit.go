package cli

import (
	"errors"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/usage"
)

// withAccounts calls f with the accounts of the state directory.
func (p *program) withAccounts(cmd *cobra.Command, f func(*app.Accounts) error) (err error) {
	c, err := p.load()
	if err != nil {
		return err
	}
	a, err := app.OpenAccounts(cmd.Context(), c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	return f(a)
}

func (p *program) limitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit",
		Short: "Limit what principals and groups use",
		Long: `Limit what a principal, or the members of a group together, use. Running servers obey
every change at once. The limits:
  sandboxes                sandboxes that exist at the same time
  memory                   their memory limits together, such as 16GiB
  cpus                     their CPU limits together, such as 8 or 1.5
  creations-per-hour       sandboxes that start
  cpu-time-per-day         CPU time of sandboxes, such as 2h; also -per-month
  sandbox-time-per-day     time for which sandboxes exist; also -per-month
  sent-bytes-per-day       bytes that sandboxes send, such as 10GiB; also -per-month
  workspace-bytes          size of all workspaces, such as 20GiB
  snapshot-bytes           size of all snapshots, such as 10GiB
  saved-bytes              size of the sandboxes that hibernate on disk, such as 2GiB
  requests-per-second      requests to the server over HTTP; twice as many at once
Hours, days and months are those of UTC. Zero allows nothing.

At a limit of sandboxes, memory, CPUs or creations, a principal makes no sandbox. At a
limit of time or sent bytes, it starts no program either, and once a minute a server
stops its sandboxes. At workspace-bytes, no program starts with a workspace, and nothing
is written to one; at snapshot-bytes, no snapshot is taken; at saved-bytes, sandboxes
hibernate in memory only. The error names the limit, and when it is free again.

A principal is the name of a token, local, or the whole name of an identity of an
issuer. The account default stands for each principal that has no limit of that name
itself, except local.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.limitSetCommand(), p.limitListCommand(), p.limitRemoveCommand())
	return cmd
}

// defaultAccount is the name of store's AnyPrincipal on the command line.
const defaultAccount = "default"

// principalOf returns the principal with that name. A name without a colon is a token's.
func principalOf(name string) sandbox.Principal {
	if name == string(sandbox.Local) || strings.Contains(name, ":") {
		return sandbox.Principal(name)
	}
	return sandbox.TokenPrincipal(name)
}

// accountOf returns the account with that name.
func accountOf(name string, group bool) app.AccountLimit {
	switch {
	case group:
		return app.AccountLimit{Group: name}
	case name == defaultAccount:
		return app.AccountLimit{Principal: app.AnyPrincipal}
	}
	return app.AccountLimit{Principal: principalOf(name)}
}

// parseSize parses a size as the configuration does.
func parseSize(text string) (int64, error) {
	var b config.Bytes
	err := b.UnmarshalText([]byte(text))
	return int64(b), err
}

func (p *program) limitSetCommand() *cobra.Command {
	var group bool
	cmd := &cobra.Command{
		Use:   "set ACCOUNT LIMIT=VALUE...",
		Short: "Set limits of a principal or a group",
		Long:  `Set limits of a principal, of the account default, or with --group of a group. See glovebox limit --help for the limits.`,
		Example: `  glovebox limit set alice sandboxes=5 cpu-time-per-day=2h
  glovebox limit set default creations-per-hour=100
  glovebox limit set --group team sent-bytes-per-month=100GiB`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return sandbox.WithHint(console.UsageError("limit set takes an account and one or more limits"), "see glovebox limit --help")
			}
			var list []app.AccountLimit
			for _, text := range args[1:] {
				l := accountOf(args[0], group)
				var err error
				if l.Limit, l.Value, err = usage.ParseLimit(text, parseSize); err != nil {
					return console.UsageError("%w", err)
				}
				list = append(list, l)
			}
			if err := checkAccountName(args[0]); err != nil {
				return err
			}
			return p.withAccounts(cmd, func(a *app.Accounts) error { return a.SetLimits(cmd.Context(), list) })
		},
	}
	cmd.Flags().BoolVar(&group, "group", false, "the account is a group")
	return cmd
}

// maxAccountName bounds the name of an account, in bytes.
const maxAccountName = 300

func checkAccountName(name string) error {
	if name == "" || len(name) > maxAccountName || name != printable(name) || strings.ContainsAny(name, "\n*") {
		return console.UsageError("%q is not the name of an account: it must have 1 to %d printable characters, and no *", name, maxAccountName)
	}
	return nil
}

func (p *program) limitListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List limits",
		Example: `  glovebox limit list --json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withAccounts(cmd, func(a *app.Accounts) error {
				list, err := a.Limits(cmd.Context())
				if err != nil {
					return err
				}
				if p.flags.json {
					if list == nil {
						list = []app.AccountLimit{}
					}
					return p.PrintJSON(list)
				}
				if len(list) == 0 {
					p.Say("no limits")
					return nil
				}
				var rows [][]string
				for _, l := range list {
					account := string(l.Principal)
					switch {
					case l.Group != "":
						account = "group " + l.Group
					case account == app.AnyPrincipal:
						account = defaultAccount
					}
					rows = append(rows, []string{account, string(l.Limit), l.Limit.Format(l.Value)})
				}
				return p.PrintTable([]string{"ACCOUNT", "LIMIT", "VALUE"}, rows)
			})
		},
	}
	p.addJSON(cmd)
	return cmd
}

func (p *program) limitRemoveCommand() *cobra.Command {
	var group bool
	cmd := &cobra.Command{
		Use:   "remove ACCOUNT [LIMIT...]",
		Short: "Remove limits of a principal or a group",
		Long:  `Remove limits of an account; without names of limits, remove all of them.`,
		Example: `  glovebox limit remove alice cpu-time-per-day
  glovebox limit remove --group team`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return sandbox.WithHint(console.UsageError("limit remove takes an account"), "list limits with glovebox limit list")
			}
			var limits []usage.Limit
			for _, name := range args[1:] {
				limits = append(limits, usage.Limit(name))
			}
			return p.withAccounts(cmd, func(a *app.Accounts) error {
				return a.RemoveLimits(cmd.Context(), accountOf(args[0], group), limits)
			})
		},
	}
	cmd.Flags().BoolVar(&group, "group", false, "the account is a group")
	return cmd
}

func (p *program) groupCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Put principals into groups with common limits",
		Long: `Put principals into groups. A limit of a group applies to what its members use
together: see glovebox limit. What a member used this month before it came counts, too.
A principal can be in 16 groups, and a group can have 1,000 members.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.groupAddCommand(), p.groupListCommand(), p.groupRemoveCommand())
	return cmd
}

func (p *program) groupAddCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "add GROUP PRINCIPAL...",
		Short:   "Add principals to a group, which need not exist",
		Example: `  glovebox group add team alice bob`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) < 2 {
				return sandbox.WithHint(console.UsageError("group add takes a group and one or more principals"), "see glovebox group add --help")
			}
			for _, name := range args {
				if err := checkAccountName(name); err != nil {
					return err
				}
			}
			return p.withAccounts(cmd, func(a *app.Accounts) error { return a.AddMembers(cmd.Context(), args[0], principalsOf(args[1:])) })
		},
	}
}

func principalsOf(names []string) (list []sandbox.Principal) {
	for _, name := range names {
		list = append(list, principalOf(name))
	}
	return list
}

func (p *program) groupListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List groups and their members",
		Example: `  glovebox group list --json`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withAccounts(cmd, func(a *app.Accounts) error {
				list, err := a.Groups(cmd.Context())
				if err != nil {
					return err
				}
				if p.flags.json {
					if list == nil {
						list = []app.Group{}
					}
					return p.PrintJSON(list)
				}
				if len(list) == 0 {
					p.Say("no groups")
					return nil
				}
				var rows [][]string
				for _, g := range list {
					var names []string
					for _, m := range g.Members {
						names = append(names, string(m))
					}
					rows = append(rows, []string{g.Name, strconv.Itoa(len(names)), strings.Join(names, " ")})
				}
				return p.PrintTable([]string{"GROUP", "MEMBERS", "PRINCIPALS"}, rows)
			})
		},
	}
	p.addJSON(cmd)
	return cmd
}

func (p *program) groupRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "remove GROUP [PRINCIPAL...]",
		Short: "Remove principals from a group, or the group",
		Long:  `Remove principals from a group. Without principals, remove the group with its limits.`,
		Example: `  glovebox group remove team bob
  glovebox group remove team`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return sandbox.WithHint(console.UsageError("group remove takes a group"), "list groups with glovebox group list")
			}
			return p.withAccounts(cmd, func(a *app.Accounts) error { return a.RemoveMembers(cmd.Context(), args[0], principalsOf(args[1:])) })
		},
	}
}
