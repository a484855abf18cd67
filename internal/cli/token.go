package cli

import (
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens for clients",
		Long: `Create, list and revoke the tokens that clients of glovebox serve send. Each token
has a name, and sandboxes belong to that name: a client cannot see the sandboxes
of another name. A running server applies every change at once.`,
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(p.tokenCreateCommand(), p.tokenListCommand(), p.tokenRevokeCommand())
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
	var e2b bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a token and print it",
		Long: `Create a token and print it. The token is shown only once, because Glovebox keeps
only its hash. Its scopes say what a client may do:
  run    make, use and stop sandboxes
  files  read and write the files of sandboxes
  admin  both, and manage the server

If a revoked token had the same name, the new token takes over its sandboxes. With
--e2b, the token is printed as an API key for E2B's SDKs (E2B_API_KEY).`,
		Example: `  glovebox token create ci
  glovebox token create reader --scope files
  TOKEN=$(glovebox token create laptop)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(usageError("token create takes one name"), "see glovebox token create --help")
			}
			return p.withTokens(cmd, func(t *app.Tokens) error {
				text, token, err := t.Create(cmd.Context(), args[0], scopes)
				if err != nil {
					return err
				}
				if e2b {
					text = app.E2BKey(text)
				}
				if p.flags.json {
					return p.printJSON(struct {
						sandbox.Token
						Text string `json:"token"`
					}{token, text})
				}
				if err := p.print("%s\n", text); err != nil {
					return err
				}
				p.say("token %s has the scopes %s and is shown only now", token.Name, strings.Join(token.Scopes, ", "))
				return nil
			})
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "`scopes` of the token: run, files, admin; default run,files")
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
With --all, also list revoked tokens and when they were revoked: those of the last
90 days, at most 1,000.`,
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
	cmd.Flags().BoolVar(&all, "all", false, "also list revoked tokens")
	p.addJSON(cmd)
	return cmd
}

func (p *program) printTokens(list []sandbox.Token, all bool) error {
	now := time.Now()
	age := func(t time.Time) string {
		if t.IsZero() {
			return "never"
		}
		return approximately(now.Sub(t)) + " ago"
	}
	shown := []sandbox.Token{}
	var rows [][]string
	for _, t := range list {
		if !all && !t.Revoked.IsZero() {
			continue
		}
		shown = append(shown, t)
		row := []string{t.Name, strings.Join(t.Scopes, ","), age(t.Created), age(t.Used), t.ID}
		if all {
			row = append(row, age(t.Revoked))
		}
		rows = append(rows, row)
	}
	if p.flags.json {
		return p.printJSON(shown)
	}
	if len(rows) == 0 {
		p.say("no tokens")
		return nil
	}
	names := []string{"NAME", "SCOPES", "MADE", "USED", "ID"}
	if all {
		names = append(names, "REVOKED")
	}
	return p.printTable(names, rows)
}

func (p *program) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "revoke NAME|ID...",
		Short: "Revoke tokens at once",
		Long: `Revoke tokens. Servers refuse them from the next request on. Sandboxes of the
tokens continue until their own limits end them.`,
		Example: `  glovebox token revoke ci`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return sandbox.WithHint(usageError("token revoke needs one or more tokens"), "list tokens with glovebox token list")
			}
			return p.withTokens(cmd, func(t *app.Tokens) error {
				var errs []error
				for _, name := range args {
					err := t.Revoke(cmd.Context(), name)
					if errors.Is(err, sandbox.NotFound) {
						err = sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "there is no token %q", name), "list tokens with glovebox token list")
					}
					if err == nil {
						p.say("revoked %s", name)
					}
					errs = append(errs, err)
				}
				return errors.Join(errs...)
			})
		},
	}
}
