package install

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxToken bounds a token, in bytes. Those of OpenID Connect have some thousand.
const maxToken = 16 << 10

// tries is how often a person may type a token.
const tries = 3

// An access gives each client the token for the server of --url.
type access struct {
	Commands
	scope clientconfig.Scope
	print bool
	// offline is true if the server is not asked.
	offline bool

	token    string // of all clients; "" if there is none
	exported bool   // token is in the environment
	wants    bool   // the server wants a token
	signIn   bool   // the clients are to sign in
	makes    bool   // a token is made for each client, in the state directory of config
	config   config.Config
	made     string // the name of the token that was made last, or ""
}

// newAccess finds out how clients authenticate at the server at address: by the token
// that the user gives, by signing in, or by tokens that it makes.
func (k Commands) newAccess(ctx context.Context, address string, flags installFlags) (*access, error) {
	a := &access{Commands: k, scope: flags.scope(), print: flags.print, offline: flags.offline}
	var err error
	if a.token, a.exported, err = k.givenToken(flags); err != nil {
		return nil, err
	}
	if flags.signIn && a.token != "" {
		return nil, console.UsageError("--sign-in writes no token, but there is one in %s or --token-file", clientconfig.TokenVariable)
	}
	if flags.offline {
		a.wants, a.signIn = !flags.signIn, flags.signIn
		if a.token == "" && !flags.signIn {
			k.Say("no token: if the server wants one, set %s or pass --token-file; glovebox token create NAME on the server makes one", clientconfig.TokenVariable)
		}
		return a, nil
	}
	server, err := look(ctx, address)
	if err != nil {
		return nil, err
	}
	a.wants = server.wantsToken
	switch {
	case a.token != "":
		k.warnPlain(address)
		return a, try(ctx, address, a.token)
	case flags.signIn && !server.signIn:
		return nil, sandbox.WithHint(console.UsageError("--sign-in: %s lets nobody sign in", address), "start it with glovebox serve --sign-in, or give a token")
	case flags.signIn:
		a.signIn, a.wants = true, false
		return a, nil
	case !a.wants, a.scope == clientconfig.Project:
		return a, nil // a project's file gets no token
	}
	local, err := k.servesHere(ctx, address, &a.config)
	if err != nil {
		return nil, err
	}
	if _, terminal := console.Terminal(k.In); terminal {
		return a, a.ask(ctx, address, server, local)
	}
	switch {
	case local:
		a.makes = true
	case server.signIn:
		a.signIn, a.wants = true, false
	}
	return a, nil
}

// givenToken returns the token of --token-file or of the environment, or "".
func (k Commands) givenToken(flags installFlags) (token string, exported bool, err error) {
	token, exported = k.Getenv(clientconfig.TokenVariable), true
	if flags.tokenFile != "" {
		in := k.In
		if flags.tokenFile != "-" {
			f, err := os.Open(flags.tokenFile)
			if err != nil {
				return "", false, console.UsageError("--token-file: %w", err)
			}
			defer f.Close()
			in = f
		}
		data, err := io.ReadAll(io.LimitReader(in, maxToken+1))
		if err != nil {
			return "", false, console.UsageError("--token-file: %w", err)
		}
		if token, exported = strings.TrimSpace(string(data)), false; token == "" {
			return "", false, console.UsageError("--token-file: there is no token in it")
		}
	}
	token = strings.TrimSpace(token)
	return token, exported && token != "", checkToken(token)
}

// checkToken refuses what no token has, because it would break the clients' files.
func checkToken(token string) error {
	if len(token) > maxToken {
		return console.UsageError("the token has more than %d bytes", maxToken)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) {
		return console.UsageError("the token has a space, a quote, a backslash, or a character that is not ASCII")
	}
	return nil
}

// ask asks the person at the terminal for a token. An empty answer chooses the way
// without one.
func (a *access) ask(ctx context.Context, address string, server host, local bool) error {
	question := "Token for " + address + ": "
	switch {
	case local:
		question = "Token for " + address + " (Enter makes one): "
	case server.signIn:
		question = "Token for " + address + " (Enter: sign in with the client): "
	}
	for left := tries - 1; ; left-- {
		token, err := a.Secret(question)
		if err != nil {
			return err
		}
		token = strings.TrimSpace(token)
		switch {
		case token != "":
			if err = checkToken(token); err == nil {
				a.warnPlain(address)
				err = try(ctx, address, token)
			}
		case local:
			a.makes = true
			return nil
		case server.signIn:
			a.signIn, a.wants = true, false
			return nil
		default:
			err = noToken(address)
		}
		if err == nil {
			a.token = token
			return nil
		}
		if left == 0 || sandbox.KindOf(err) == sandbox.Unavailable || token == "" {
			return err
		}
		a.Say("%v", err)
	}
}

func noToken(address string) error {
	return sandbox.WithHint(console.UsageError("%s wants a token", address),
		"glovebox token create NAME, on the server, makes one; set %s, or pass --token-file FILE, or --token-file - for standard input", clientconfig.TokenVariable)
}

// warnPlain warns of a token that crosses a network in the clear.
func (k Commands) warnPlain(address string) {
	if u, err := url.Parse(address); err == nil && u.Scheme == "http" && !loopback(u) {
		k.Say("warning: %s is not encrypted, so others on the network can read the token", address)
	}
}

func loopback(u *url.URL) bool {
	name := u.Hostname()
	if addr, err := netip.ParseAddr(name); err == nil {
		return addr.IsLoopback()
	}
	return name == "localhost" || strings.HasSuffix(name, ".localhost")
}

// servesHere reports whether address is of this machine, and a server runs on the
// user's state directory. Whether it is the same server shows when a token is tried.
func (k Commands) servesHere(ctx context.Context, address string, c *config.Config) (bool, error) {
	u, err := url.Parse(address)
	if err != nil || !loopback(u) {
		return false, nil
	}
	if *c, err = k.Load(); err != nil {
		return false, err
	}
	return app.Served(ctx, *c)
}

// give puts the token for a client into s. A valid token that the client's file has
// for the same URL stays.
func (a *access) give(ctx context.Context, env clientconfig.Environment, c clientconfig.Client, s *clientconfig.Server) error {
	a.made = ""
	s.Token, s.Exported, s.WantsToken = a.token, a.exported, a.wants
	if s.Token != "" || !a.wants || a.scope == clientconfig.Project {
		return nil
	}
	old, ok, err := c.Present(env, a.scope, s.Name)
	if err != nil {
		return err
	}
	if ok && old.URL == s.URL && old.Token != "" && (a.offline || try(ctx, s.URL, old.Token) == nil) {
		s.Token = old.Token
		return nil
	}
	if a.offline {
		return nil
	}
	if !a.makes {
		return sandbox.Wrap(noToken(s.URL), c.Title, "")
	}
	return a.make(ctx, c, s)
}

// make makes a token for a client, and revokes it again if the server does not
// accept it.
func (a *access) make(ctx context.Context, c clientconfig.Client, s *clientconfig.Server) error {
	stem := c.Name
	if host, err := os.Hostname(); err == nil {
		stem += "-" + notInName.ReplaceAllString(host, "-")
	}
	stem = stem[:min(len(stem), 60)]
	if a.print {
		s.Token = "(a-new-token-named-" + stem + ")"
		return nil
	}
	tokens, err := app.OpenTokens(ctx, a.config)
	if err != nil {
		return err
	}
	defer tokens.Close() // each change is already stored
	for i := 1; ; i++ {
		name := stem
		if i > 1 {
			name += "-" + strconv.Itoa(i)
		}
		text, token, err := tokens.Create(ctx, name, nil)
		if sandbox.KindOf(err) == sandbox.Conflict && i < 100 {
			continue // a token of another entry, whose text nobody has
		}
		if err != nil {
			return err
		}
		a.made = token.Name
		if err := try(ctx, s.URL, text); err != nil {
			if sandbox.KindOf(err) == sandbox.Unauthenticated {
				err = sandbox.WithHint(
					sandbox.Errorf(sandbox.Unauthenticated, "%s does not use the state directory %s, so no token can be made for it here", s.URL, a.config.StateDir),
					"name the directory of that server with --state-dir, or give one of its tokens")
			}
			return errors.Join(err, a.undo(ctx))
		}
		s.Token = text
		return nil
	}
}

// notInName matches what a token's name cannot have.
var notInName = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// undo revokes the token that was made last.
func (a *access) undo(ctx context.Context) error {
	if a.made == "" {
		return nil
	}
	name := a.made
	a.made = ""
	tokens, err := app.OpenTokens(context.WithoutCancel(ctx), a.config)
	if err == nil {
		_, err = tokens.Revoke(context.WithoutCancel(ctx), name)
		err = errors.Join(err, tokens.Close())
	}
	if err != nil {
		return sandbox.WithHint(sandbox.Wrap(err, "revoke the token", name), "run glovebox token revoke %s", name)
	}
	return nil
}

// sayAccess reports what a client's access is, and the user's next step for it.
func (a *access) sayAccess(c clientconfig.Client, name string) {
	if a.made != "" {
		a.Say("  made the token %s for it; glovebox token revoke %s ends its access", a.made, a.made)
	}
	if a.signIn {
		a.Say("  no token: %s", c.SignInStep(name))
	}
}

// printable maps control characters to nothing, for [strings.Map].
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return -1
}
