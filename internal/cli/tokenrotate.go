package cli

import (
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// parseLifetime parses a time span such as 12h or 90d. "" is zero.
func parseLifetime(flag, text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, nerr := strconv.ParseUint(days, 10, 16)
		d, err = time.Duration(n)*24*time.Hour, nerr
	}
	if err != nil || d <= 0 {
		return 0, console.UsageError("%s: %q is not a time span; write it like 90d or 12h", flag, text)
	}
	return d, nil
}

func (p *program) tokenRotateCommand() *cobra.Command {
	var grace, expires string
	var e2b bool
	cmd := &cobra.Command{
		Use:   "rotate NAME|ID",
		Short: "Replace a token by a new one without interruption",
		Long: `Replace the text of a token and print the new one. The old text stays valid for the
grace time, in which you give clients the new one. Then servers end what the old text
opened. Sessions of clients that moved to the new one go on. The ID, name, scopes and
sandboxes of the token stay, and so does the access of clients from glovebox token
clients.

A token that expires gets the same lifetime again, or that of --expires. If a token may
have leaked, use --grace 0, or revoke it, which also ends the access of clients.`,
		Example: `  glovebox token rotate ci
  glovebox token rotate ci --grace 24h --expires 90d`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("token rotate takes one token"), "list tokens with glovebox token list")
			}
			var r app.Rotation
			var err error
			if grace != "0" {
				if r.Grace, err = parseLifetime("--grace", grace); err != nil {
					return err
				}
			}
			if r.Lifetime, err = parseLifetime("--expires", expires); err != nil {
				return err
			}
			return p.withTokens(cmd, func(t *app.Tokens) error {
				text, token, err := t.Rotate(cmd.Context(), args[0], r)
				if err != nil {
					return err
				}
				return p.printNewToken(token, text, e2b)
			})
		},
	}
	cmd.Flags().StringVar(&grace, "grace", app.UsualGrace.String(), "`time` for which the old text stays valid; at most 30d, 0 is none")
	cmd.Flags().StringVar(&expires, "expires", "", "`time` until the token expires, such as 90d; default its lifetime again")
	cmd.Flags().BoolVar(&e2b, "e2b", false, "print the token as an API key for E2B's SDKs")
	p.addJSON(cmd)
	return cmd
}

// printNewToken prints the text of a token that was made or rotated.
func (p *program) printNewToken(token sandbox.Token, text string, e2b bool) error {
	if e2b {
		text = app.E2BKey(text)
	}
	if p.flags.json {
		return p.PrintJSON(struct {
			sandbox.Token
			Text string `json:"token"`
		}{token, text})
	}
	if err := p.Print("%s\n", text); err != nil {
		return err
	}
	until := ""
	if !token.Expires.IsZero() {
		until = ", until " + token.Expires.UTC().Format(time.RFC3339)
	}
	p.Say("%s: scopes %s%s. The token is shown only now.", token.Name, strings.Join(token.Scopes, ", "), until)
	if token.PreviousUntil.After(time.Now()) {
		p.Say("the token of before is valid until %s", token.PreviousUntil.UTC().Format(time.RFC3339))
	}
	return nil
}
