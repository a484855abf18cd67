// Package install has the commands install and uninstall: they add Glovebox to the
// configuration of MCP clients, and remove it, or everything of Glovebox.
//
// Only the command line imports it.
package install

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/diff"
	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/clientconfig"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Commands makes the commands, with the parts of the command line that they need.
type Commands struct {
	console.Streams
	// Load returns the configuration, with the settings of global flags.
	Load func() (config.Config, error)
	// Options returns the options of a system with a configuration.
	Options func(config.Config) app.Options
	// ConfigFlag returns the value of the flag --config.
	ConfigFlag func() string
}

// installFlags are the flags of install and uninstall.
type installFlags struct {
	name, url, tokenFile string
	toolPrefix           string
	project, print, all  bool
	check                bool
	signIn, offline      bool
	approve              bool
	// everything is uninstall --all; yes does not ask before it.
	everything, yes bool
}

func (f *installFlags) scope() clientconfig.Scope {
	if f.project {
		return clientconfig.Project
	}
	return clientconfig.User
}

// Install returns the command install.
func (k Commands) Install() *cobra.Command {
	var flags installFlags
	cmd := &cobra.Command{
		Use:   "install [CLIENT...] [-- ARGS...]",
		Short: "Add Glovebox to the configuration of MCP clients",
		Long: `Add Glovebox to the configuration of the named MCP clients. Without names, Install
finds the clients on this machine, and asks before it changes them. A client then
starts glovebox mcp itself. Arguments after -- are passed to glovebox mcp.

With --url, a client uses a running server. Install asks for the server's token on a
terminal; otherwise it takes the token from --token-file or GLOVEBOX_TOKEN, and asks
the server whether it is valid. For a server of yours on this machine, install makes
a token for each client. With --sign-in, the client signs in and needs no token.

Install changes only the entry of Glovebox: comments, order and other settings
stay. An existing entry is updated. A copy of the old file is kept beside it.

Clients: ` + clientNames(),
		Example: `  glovebox install                            every client found here, after asking
  glovebox install cursor vscode              these
  glovebox install codex --print              show what would change
  glovebox install --check                    ask the clients whether they reach it
  glovebox install claude-code --project      for this directory only
  glovebox install claude-desktop -- --profile automata
  glovebox install claude-desktop --tool-prefix box_
  glovebox install cursor --url https://box.example.com/mcp
  glovebox install cursor --url https://box.example.com/mcp --token-file token`,
		RunE: func(cmd *cobra.Command, args []string) error {
			server, names, err := k.server(cmd, args, flags)
			if err != nil {
				return err
			}
			env, err := k.clientEnvironment()
			if err != nil {
				return err
			}
			if flags.check {
				return k.checkClients(cmd.Context(), env, names, flags)
			}
			clients, err := k.chooseClients(cmd, env, names, flags)
			if err != nil {
				return err
			}
			if server.Approve, err = k.consent(env, clients, flags); err != nil {
				return err
			}
			return k.add(cmd.Context(), env, clients, server, flags)
		},
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&flags.url, "url", "", "use the server at this `URL`")
	cmd.Flags().BoolVar(&flags.check, "check", false, "change nothing; run each client's own list of servers, for which the client starts them, and report whether it has Glovebox")
	cmd.Flags().StringVar(&flags.tokenFile, "token-file", "", "`file` with the token for --url; - is standard input")
	cmd.Flags().BoolVar(&flags.signIn, "sign-in", false, "with --url, write no token: the client opens a page of the server where people sign in")
	cmd.Flags().BoolVar(&flags.offline, "offline", false, "with --url, do not ask the server, which may be off")
	cmd.Flags().StringVar(&flags.toolPrefix, "tool-prefix", "", "put this `prefix` in front of the names of all tools, such as box_")
	cmd.Flags().BoolVar(&flags.approve, "approve-tools", false, "let Codex call the tools of Glovebox without asking; by default it asks, and codex exec refuses")
	return cmd
}

// add adds server to the configuration of the clients.
func (k Commands) add(ctx context.Context, env clientconfig.Environment, clients []clientconfig.Client, server clientconfig.Server, flags installFlags) error {
	work := work{plan: func(c clientconfig.Client) (clientconfig.Change, error) { return c.Plan(env, flags.scope(), server) }}
	automatic := slices.ContainsFunc(clients, func(c clientconfig.Client) bool { return !c.ByHand() && c.Remote() })
	if server.URL != "" && automatic {
		a, err := k.newAccess(ctx, server.URL, flags)
		if err != nil {
			return err
		}
		plan := work.plan
		work.plan = func(c clientconfig.Client) (clientconfig.Change, error) {
			// A client that cannot be changed needs no token.
			if _, err := plan(c); err != nil {
				return clientconfig.Change{}, err
			}
			if err := a.give(ctx, env, c, &server); err != nil {
				return clientconfig.Change{}, err
			}
			change, err := plan(c)
			if err != nil {
				err = errors.Join(err, a.undo(ctx))
			}
			return change, err
		}
		work.undo = func() error { return a.undo(ctx) }
		work.done = func(c clientconfig.Client) { a.sayAccess(c, server.Name) }
	}
	plan := work.plan
	work.plan = func(c clientconfig.Client) (clientconfig.Change, error) {
		if c.ByHand() {
			return clientconfig.Change{}, k.printSteps(c, server)
		}
		return plan(c)
	}
	return k.changeClients(clients, flags, false, work)
}

// consent reports whether the user lets a client call the tools without asking. Only
// the user decides that: by the flag, by an earlier entry, or at the terminal.
func (k Commands) consent(env clientconfig.Environment, clients []clientconfig.Client, flags installFlags) (bool, error) {
	var asking []string
	some := false
	for _, c := range clients {
		if !c.Approves() {
			continue
		}
		some = true
		p, _, err := c.Present(env, flags.scope(), flags.name)
		if err == nil && !p.Approval { // Plan reports the error
			asking = append(asking, c.Title)
		}
	}
	if flags.approve && !some {
		return false, console.UsageError("--approve-tools is for codex; the other clients ask their users by rules of their own")
	}
	if flags.approve || flags.print || len(asking) == 0 {
		return flags.approve, nil
	}
	title := strings.Join(asking, ", ")
	if _, terminal := console.Terminal(k.In); !terminal {
		k.Say("%s asks before it runs code in a sandbox, and codex exec refuses; with --approve-tools it does neither", title)
		return false, nil
	}
	return k.Asks(title + " asks before it runs code in a sandbox, and codex exec refuses. Let it call the tools of Glovebox without asking?"), nil
}

func (f *installFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.name, "name", "glovebox", "`name` of the entry in the configuration")
	cmd.Flags().BoolVar(&f.project, "project", false, "change the configuration of the project in the current directory; it is shared with others and gets no token")
	cmd.Flags().BoolVar(&f.print, "print", false, "print the changes, but do not make them")
	if cmd.Name() == "install" {
		cmd.Flags().BoolVar(&f.all, "all", false, "change every client found on this machine, without asking")
		return
	}
	cmd.Flags().BoolVar(&f.everything, "all", false, "also stop all sandboxes, and remove the state directory, the configuration file and the copies of clients' files")
	cmd.Flags().BoolVar(&f.yes, "yes", false, "with --all, remove without asking")
}

func clientNames() string {
	var names []string
	for _, c := range clientconfig.Clients() {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ") + "."
}

// server returns the server to configure, from the flags, and the names of
// clients in args.
func (k Commands) server(cmd *cobra.Command, args []string, flags installFlags) (clientconfig.Server, []string, error) {
	s := clientconfig.Server{Name: flags.name}
	names, extra := args, []string(nil)
	if i := cmd.ArgsLenAtDash(); i >= 0 {
		names, extra = args[:i], args[i:]
	}
	if s.Name == "" || len(s.Name) > 64 || strings.ContainsAny(s.Name, "\x00\r\n\t") {
		return s, nil, console.UsageError("--name: %q is not a name of 1 to 64 characters on one line", s.Name)
	}
	if flags.url == "" {
		for _, f := range []struct {
			name string
			set  bool
		}{{"--token-file", flags.tokenFile != ""}, {"--sign-in", flags.signIn}, {"--offline", flags.offline}} {
			if f.set {
				return s, nil, console.UsageError("%s needs --url", f.name)
			}
		}
		if flags.toolPrefix != "" {
			if err := config.CheckToolPrefix("--tool-prefix", flags.toolPrefix); err != nil {
				return s, nil, err
			}
			extra = append([]string{"--tool-prefix", flags.toolPrefix}, extra...)
		}
		program, err := ownPath()
		if err != nil {
			return s, nil, err
		}
		s.Command, s.Args = program, append([]string{"mcp"}, extra...)
		return s, names, nil
	}
	if len(extra) > 0 {
		return s, nil, sandbox.WithHint(console.UsageError("arguments after -- cannot be combined with --url"), "pass them to glovebox serve on that server")
	}
	if flags.toolPrefix != "" {
		return s, nil, sandbox.WithHint(console.UsageError("--tool-prefix cannot be combined with --url"), "pass it to glovebox serve on that server")
	}
	u, err := url.Parse(flags.url)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return s, nil, sandbox.WithHint(console.UsageError("--url: %q is not the URL of a server", flags.url), "write it like https://box.example.com/mcp")
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/mcp"
	}
	s.URL = u.String()
	return s, names, nil
}

// ownPath returns a path of this program that stays valid after an update. It
// prefers a link in PATH to the versioned path of a package manager.
func ownPath() (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", sandbox.Errorf(sandbox.Internal, "find this program: %w", err)
	}
	name := "glovebox"
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return self, nil
	}
	found, err = filepath.Abs(found)
	if err != nil {
		return self, nil
	}
	a, errA := os.Stat(self)
	b, errB := os.Stat(found)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return found, nil
	}
	return self, nil
}

func (k Commands) clientEnvironment() (clientconfig.Environment, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return clientconfig.Environment{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%w", err), "set HOME")
	}
	project, err := os.Getwd()
	if err != nil {
		return clientconfig.Environment{}, sandbox.Errorf(sandbox.Unavailable, "%w", err)
	}
	return clientconfig.Environment{
		OS: runtime.GOOS, Home: home, Project: project, Getenv: k.Getenv,
		Exists: func(path string) bool { _, err := os.Stat(path); return err == nil },
		InPath: func(name string) bool { _, err := exec.LookPath(name); return err == nil },
	}, nil
}

func findClients(names []string) ([]clientconfig.Client, error) {
	var clients []clientconfig.Client
	for _, name := range names {
		c, err := clientconfig.Find(name)
		if err != nil {
			return nil, &console.ExitError{Status: console.StatusUsage, Err: err}
		}
		clients = append(clients, c)
	}
	return clients, nil
}

// chooseClients returns the named clients. Without names, it returns the
// installed clients, if --all is set or the user at the terminal agrees.
func (k Commands) chooseClients(cmd *cobra.Command, env clientconfig.Environment, names []string, flags installFlags) ([]clientconfig.Client, error) {
	if len(names) > 0 {
		return findClients(names)
	}
	var found []clientconfig.Client
	var titles []string
	for _, c := range clientconfig.Clients() {
		if c.Installed(env) && !c.ByHand() {
			found = append(found, c)
			titles = append(titles, c.Title)
		}
	}
	if len(found) == 0 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "no MCP client was found on this machine"),
			"name one: %s", clientNames())
	}
	k.Say("found: %s", strings.Join(titles, ", "))
	if flags.all || flags.print {
		return found, nil
	}
	if _, ok := console.Terminal(k.In); !ok {
		return nil, sandbox.WithHint(console.UsageError("name the clients, or pass --all"), "see the clients in glovebox install --help")
	}
	return found, k.Agree("add Glovebox to these?")
}

// A work is what changeClients does for each client.
type work struct {
	plan func(clientconfig.Client) (clientconfig.Change, error)
	// undo takes back what plan made, if its change was not made. done is called
	// after a change. Both may be nil.
	undo func() error
	done func(clientconfig.Client)
}

// changeClients makes or shows the change of each client. It continues after a
// client that fails.
func (k Commands) changeClients(clients []clientconfig.Client, flags installFlags, removal bool, work work) error {
	var errs []error
	changed := 0
	for _, c := range clients {
		change, err := work.plan(c)
		switch {
		case err != nil:
			errs = append(errs, err)
			continue
		case change.Path == "":
			continue // done by hand
		case !change.Needed():
			if !flags.all || !removal {
				k.Say("%s: nothing to change", c.Title)
			}
			continue
		}
		changed++
		if flags.print {
			old, name := change.Path, change.Path
			if change.Before == nil {
				old = os.DevNull
			}
			if err := k.Print("%s", diff.Diff(old, change.Before, name, change.After)); err != nil {
				return err
			}
			continue
		}
		backup, err := change.Apply(time.Now())
		if err != nil {
			errs = append(errs, sandbox.Wrap(err, c.Title, ""))
			if work.undo != nil {
				errs = append(errs, work.undo())
			}
			continue
		}
		errs = append(errs, k.sayChange(c, change, backup, flags, removal))
		if work.done != nil {
			work.done(c)
		}
	}
	if changed == 0 && len(errs) == 0 && removal {
		k.Say("no client has Glovebox in its configuration")
	}
	return errors.Join(errs...)
}

// sayChange reports a change that was made, and the user's next step.
func (k Commands) sayChange(c clientconfig.Client, change clientconfig.Change, backup string, flags installFlags, removal bool) error {
	next := c.Restart
	switch {
	case change.Removes:
		k.Say("%s: removed %s, which had only Glovebox in it", c.Title, change.Path)
	case removal:
		k.Say("%s: taken out of %s", c.Title, change.Path)
	case change.Replaces:
		k.Say("%s: replaced in %s", c.Title, change.Path)
	default:
		k.Say("%s: added to %s", c.Title, change.Path)
	}
	if removal {
		next = cmp.Or(c.Unload, c.Restart)
	}
	if backup != "" {
		k.Say("  copy of the old file: %s", backup)
	}
	var earlier []string
	var err error
	if removal && !flags.everything {
		earlier, err = change.Backups()
	}
	for _, file := range earlier {
		if file != backup {
			k.Say("  earlier copy: %s", file)
		}
	}
	if change.Note != "" {
		k.Say("  to do: %s", change.Note)
	}
	k.Say("  then %s", next)
	return err
}

// printSteps prints the manual steps for a client without a configuration file.
func (k Commands) printSteps(c clientconfig.Client, s clientconfig.Server) error {
	endpoint, token := s.URL, "from glovebox token create"
	config, err := s.JSON()
	if err != nil {
		return sandbox.Wrap(err, c.Title, "")
	}
	command := strings.Join(append([]string{s.Command}, s.Args...), " ")
	if s.Command == "" {
		command = "glovebox mcp"
	}
	if endpoint == "" {
		endpoint = "http://127.0.0.1:8080/mcp, where glovebox serve listens (as seen from " + c.Title + ")"
	}
	if k.Getenv(clientconfig.TokenVariable) != "" {
		token = "in " + clientconfig.TokenVariable
	}
	steps := strings.NewReplacer("{url}", endpoint, "{token}", token, "{command}", command, "{json}", config).Replace(c.Steps)
	return k.Print("%s:\n%s", c.Title, steps)
}
