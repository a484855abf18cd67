package cli

import (
	"context"
	"fmt"
	"os/exec"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
)

func (p *program) openCommand() *cobra.Command {
	var token string
	var show bool
	cmd := &cobra.Command{
		Use:   "open",
		Short: "Open the server's dashboard in a browser",
		Long: `Open the dashboard of the server on this state directory, signed in. The pages
show the sandboxes and runs of one token: of the only one, of the one that the
first start made, or of the one that --token names.

The browser gets a link that works once, within a minute. Without a browser, and
with --print, the command prints the link. Use --print if other people use this
machine: the arguments of a browser are visible to them.`,
		Example: `  glovebox open
  glovebox open --token alice
  ssh -L 8080:127.0.0.1:8080 box.example.com glovebox open --print`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return p.openDashboard(cmd.Context(), token, show) },
	}
	cmd.Flags().StringVar(&token, "token", "", "`name` of the token whose sandboxes the pages show")
	cmd.Flags().BoolVar(&show, "print", false, "print the link, and open no browser")
	return cmd
}

func (p *program) openDashboard(ctx context.Context, token string, show bool) error {
	c, err := p.load()
	if err != nil {
		return err
	}
	link, err := app.OpenDashboard(ctx, c, token)
	if err != nil {
		return err
	}
	if _, terminal := console.Terminal(p.Err); !show && terminal && p.browse(ctx, link.URL) {
		p.Say("the dashboard of %s opens in a browser", link.Principal)
		return nil
	}
	fmt.Fprintln(p.Out, link.URL)
	p.Say("the link shows the sandboxes of %s, once, until %s", link.Principal, link.Expires.Local().Format("15:04:05"))
	return nil
}

// browse opens a URL in the person's browser, and reports whether it could.
func (p *program) browse(ctx context.Context, url string) bool {
	var name string
	var args []string
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler"}
	default:
		if p.Getenv("DISPLAY") == "" && p.Getenv("WAYLAND_DISPLAY") == "" {
			return false
		}
		name = "xdg-open"
	}
	return exec.CommandContext(ctx, name, append(args, url)...).Run() == nil
}
