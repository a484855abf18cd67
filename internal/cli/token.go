package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke tokens for clients",
		Long: `Create, list, rotate and revoke the tokens that clients of glovebox serve send. Each token
has a name, and sandboxes belong to that name: a client cannot see the sandboxes
of another name. A running server applies every change at once.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.tokenCreateCommand(), p.tokenListCommand(), p.tokenClientsCommand(), p.tokenRotateCommand(), p.tokenRevokeCommand())
	return cmd
}

// withTokens calls f with the tokens of the state directory.
func (p *program) withTokens(cmd *cobra.Command, f func(*app.Tokens) error) (err error) {
	c, err := p.load()
	if err != nil {
		return err
	}
	tokens, err := app.OpenTokens(cmd.Context(), c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tokens.Close()) }()
	return f(tokens)
}

func (p *program) tokenCreateCommand() *cobra.Command {
	var scopes []string
	var role, expires string
	var spec app.TokenSpec
	var e2b bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token and print it",
		Long: `Create a token and print it. The token is shown only once, because Glovebox keeps
only its hash. Its role says what a client may do:
  member     the scopes run and files; the default
  read-only  the scope read
  operator   the scope operate
  admin      the scope admin
A role stands for scopes, of which a token can also have a part:
  run    make, use and stop sandboxes, and open their ports; code in a sandbox can
         read and write all of its files
  files  the tools for files and workspaces, links to files, and /workspaces; alone
         it makes no sandbox, and suits a program that imports and exports its own
         workspaces
  read   what of run and files changes nothing, for its own sandboxes and workspaces
  operate  read, and for all names: the tokens, groups, limits and runs at /api, and
         the server's metrics at /metrics
  admin  all of these, and changes of tokens, groups and limits at /api
E2B's SDKs need run and files. No scope gives access to the sandboxes, files and
output of another name. --principal makes another token for the objects of a name.

A name means one user. If a revoked token had the same name, the new token takes
over its sandboxes, workspaces, runs and links. With --e2b, the token is printed as
an API key for E2B's SDKs (E2B_API_KEY).`,
		Example: `  glovebox token create ci
  glovebox token create prometheus --role operator
  glovebox token create ci --expires 90d --description "the build server"
  glovebox token create alice-view --role read-only --principal alice
  TOKEN=$(glovebox token create laptop)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("token create takes one name"), "see glovebox token create --help")
			}
			spec.Name = args[0]
			var err error
			if spec.Scopes, err = app.ScopesOf(scopes, role); err != nil {
				return err
			}
			if spec.Lifetime, err = parseLifetime("--expires", expires); err != nil {
				return err
			}
			return p.withTokens(cmd, func(t *app.Tokens) error {
				heritage, known, err := t.Heritage(cmd.Context(), spec.Name)
				if err != nil {
					return err
				}
				text, token, err := t.Make(cmd.Context(), spec)
				if err != nil {
					return err
				}
				if known && spec.Principal == "" {
					p.Say("a revoked token had the name %s: the new one takes over its sandboxes (%d), workspaces (%d), runs and links",
						token.Name, len(heritage.Sandboxes), heritage.Workspaces)
					p.Hint("if the new token is for another user, revoke it and use another name")
				}
				return p.printNewToken(token, text, e2b)
			})
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "`scopes` of the token: run, files, read, operate, admin; default run,files")
	cmd.Flags().StringVar(&role, "role", "", "`role` of the token: member, read-only, operator or admin")
	cmd.Flags().StringVar(&expires, "expires", "", "`time` until the token expires, such as 90d or 12h; default never")
	cmd.Flags().StringVar(&spec.Description, "description", "", "`text` for people")
	cmd.Flags().StringVar(&spec.Principal, "principal", "", "`name` whose objects the token gives access to; default its own")
	cmd.Flags().BoolVar(&e2b, "e2b", false, "print the token as an API key for E2B's SDKs")
	p.addJSON(cmd)
	return cmd
}

func (p *program) tokenListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens",
		Long: `List the valid tokens with names and scopes. The tokens themselves are never shown.
With --all, also list revoked and expired tokens: those of the last 90 days, at most
1,000.`,
		Example: `  glovebox token list --all`,
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.withTokens(cmd, func(t *app.Tokens) error {
				list, err := t.List(cmd.Context())
				if err != nil {
					return err
				}
				return p.printTokens(list, all)
			})
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also list revoked and expired tokens")
	p.addJSON(cmd)
	return cmd
}

func (p *program) printTokens(list []sandbox.Token, all bool) error {
	now := time.Now()
	age := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return console.Approximately(now.Sub(t)) + " ago"
	}
	shown := []sandbox.Token{}
	var rows [][]string
	for _, t := range list {
		if !all && !t.InForce(now) {
			continue
		}
		shown = append(shown, t)
		expires := "never"
		if !t.Expires.IsZero() {
			expires = t.Expires.UTC().Format(time.DateOnly)
		}
		row := []string{t.Name, app.RoleOf(t.Scopes), strings.Join(t.Scopes, ","), age(t.Created), age(t.Used), expires, t.ID}
		if all {
			row = append(row, age(t.Revoked))
		}
		rows = append(rows, append(row, printable(t.Description)))
	}
	if p.flags.json {
		return p.PrintJSON(shown)
	}
	if len(rows) == 0 {
		p.Say("no tokens")
		return nil
	}
	names := []string{"NAME", "ROLE", "SCOPES", "MADE", "USED", "EXPIRES", "ID"}
	if all {
		names = append(names, "REVOKED")
	}
	return p.PrintTable(append(names, "DESCRIPTION"), rows)
}

func (p *program) tokenRevokeCommand() *cobra.Command {
	var stop bool
	cmd := &cobra.Command{
		Use:   "revoke NAME|ID...",
		Short: "Revoke tokens at once",
		Long: `Revoke tokens. Servers refuse them from the next request on. Within seconds, they
also end the sessions and connections of the tokens, the runs that their calls wait
for, and the links to ports and files that their users made.

Sandboxes of the tokens live on until their own limits end them, and their other
programs with them. With --stop, stop them. Workspaces stay.

The ID of a client, from glovebox token clients, ends the access of that client only.`,
		Example: `  glovebox token revoke ci
  glovebox token revoke dave --stop`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return sandbox.WithHint(console.UsageError("token revoke needs one or more tokens"), "list tokens with glovebox token list")
			}
			var errs []error
			var principals []sandbox.Principal // that have no valid token
			err := p.withTokens(cmd, func(t *app.Tokens) error {
				for _, name := range args {
					if strings.HasPrefix(name, sandbox.GrantIDPrefix) {
						errs = append(errs, p.endGrant(cmd.Context(), t, name))
						continue
					}
					r, err := t.Revoke(cmd.Context(), name)
					if errors.Is(err, sandbox.NotFound) {
						err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no token %q", name), "list tokens with glovebox token list")
					}
					errs = append(errs, err)
					if err != nil {
						continue
					}
					p.sayRevoked(name, r, stop)
					if r.Successor == "" {
						principals = append(principals, r.Principal)
					}
				}
				return nil
			})
			errs = append(errs, err)
			if stop && len(principals) > 0 {
				errs = append(errs, p.stopRevoked(cmd.Context(), principals))
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&stop, "stop", false, "also stop the sandboxes of the tokens")
	return cmd
}

// sayRevoked reports a revocation, and the sandboxes that live on unless they are
// stopped next.
func (p *program) sayRevoked(name string, r app.Revoked, stop bool) {
	text := "revoked " + name
	if r.Before {
		text = name + " was already revoked"
	}
	switch n := len(r.Sandboxes); {
	case r.Successor != "":
		text += fmt.Sprintf("; the sandboxes of %s belong to the valid token %s", r.Name, r.Successor)
	case n == 0 || stop:
	case n == 1:
		text += "; 1 sandbox lives on: glovebox stop " + r.Sandboxes[0]
	default:
		text += fmt.Sprintf("; %d sandboxes live on: glovebox stop %s", n, strings.Join(r.Sandboxes, " "))
	}
	p.Say("%s", text)
}

// stopRevoked stops the sandboxes of principals whose tokens were revoked.
func (p *program) stopRevoked(ctx context.Context, principals []sandbox.Principal) (err error) {
	sys, err := p.open(ctx, looks)
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	return sys.StopRevoked(ctx, principals, func(id string) { p.Say("stopped %s", id) })
}
