package install

import (
	"context"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// checkClients reports for each client whether its configuration has Glovebox,
// and runs the client's own list command where there is one. It asks the server of an
// entry with a URL itself. Without names, it checks the installed clients. The error
// is of kind Unavailable if a client lacks Glovebox or cannot reach it.
func (k Commands) checkClients(ctx context.Context, env clientconfig.Environment, names []string, flags installFlags) error {
	clients, err := findClients(names)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		clients = slices.DeleteFunc(clientconfig.Clients(), func(c clientconfig.Client) bool { return c.ByHand() || !c.Installed(env) })
	}
	if len(clients) == 0 {
		return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "no MCP client was found on this machine"), "name one: %s", clientNames())
	}
	failed := 0
	for _, c := range clients {
		report, err := c.Ask(ctx, env, flags.scope(), flags.name)
		var notes []string
		if err == nil {
			notes, err = k.checkEntry(ctx, env, c, flags)
		}
		if err != nil {
			failed++
			report = err.Error()
			if hint := sandbox.HintOf(err); hint != "" {
				report += "; " + hint
			}
		}
		if err := k.Print("%s: %s\n", c.Title, report); err != nil {
			return err
		}
		for _, note := range notes {
			if err := k.Print("  %s\n", note); err != nil {
				return err
			}
		}
	}
	if failed > 0 {
		return sandbox.Errorf(sandbox.Unavailable, "%d of %d clients do not have a working %s", failed, len(clients), flags.name)
	}
	return nil
}

// checkEntry checks a client's entry: the server at its URL, its token, and who can
// read the file. It returns notes about the rest.
func (k Commands) checkEntry(ctx context.Context, env clientconfig.Environment, c clientconfig.Client, flags installFlags) (notes []string, err error) {
	p, ok, err := c.Present(env, flags.scope(), flags.name)
	if err != nil || !ok {
		return nil, err
	}
	if prefix := p.ToolPrefix(); prefix != "" {
		notes = append(notes, "the names of its tools begin with "+prefix)
	}
	if p.Exposed {
		notes = append(notes, "warning: other users of this machine can read the token in "+p.Path+"; run chmod 600 on it")
	}
	if p.URL == "" || flags.offline {
		return notes, nil
	}
	server, err := look(ctx, p.URL)
	if err != nil {
		return notes, err
	}
	token := p.Token
	if p.Variable && flags.scope() == clientconfig.User {
		// The file of a project may be a stranger's, whose server gets no token here.
		token = k.Getenv(clientconfig.TokenVariable)
	}
	switch {
	case token != "":
		return notes, try(ctx, p.URL, token)
	case p.Variable:
		notes = append(notes, "its token is in "+clientconfig.TokenVariable+", where the client is started")
	case server.wantsToken && server.signIn:
		notes = append(notes, "it has no token: "+c.SignInStep(flags.name))
	case server.wantsToken:
		return notes, sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "it has no token, which %s wants", p.URL),
			"run glovebox install %s --url %s", c.Name, p.URL)
	}
	return notes, nil
}
