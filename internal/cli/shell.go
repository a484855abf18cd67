package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) shellCommand() *cobra.Command {
	var f newFlags
	var root bool
	cmd := &cobra.Command{
		Use:        "shell [flags] [SANDBOX]",
		SuggestFor: []string{"exec", "attach", "sh"},
		Short:      "Open a shell in a sandbox",
		Long: `Open an interactive shell in a fresh sandbox or in a running one. A fresh sandbox
is removed when the shell ends. The exit status is the shell's own.`,
		Example: `  glovebox shell
  glovebox shell --memory 2g --root
  glovebox shell sbx_k3v5...          a sandbox from the list of glovebox ps`,
		Args: between(0, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			fd, ok := console.Terminal(p.In)
			if !ok {
				return sandbox.WithHint(console.UsageError("standard input is not a terminal"),
					"for a script, use glovebox run -l bash FILE")
			}
			p.flags.adjust = f.grant
			req := sandbox.NewShell(p.terminalType(), *terminalSize(fd))
			req.Root = root
			var err error
			if req.New, err = f.request(p.Getenv); err != nil {
				return err
			}
			if len(args) > 0 {
				req.SandboxID = sandbox.CanonicalID(args[0])
			}
			return console.Broken(p.shell(cmd.Context(), fd, req))
		},
	}
	cmd.Flags().BoolVar(&root, "root", false, "be root of the sandbox")
	f.add(cmd)
	return cmd
}

// terminalType returns TERM. A shell needs it, and it reveals only the
// terminal's abilities.
func (p *program) terminalType() string {
	if t := p.Getenv("TERM"); t != "" {
		return t
	}
	return "xterm"
}

func terminalSize(fd int) *sandbox.TerminalSize {
	cols, rows, err := term.GetSize(fd)
	if err != nil || cols <= 0 || rows <= 0 || cols > 1<<15 || rows > 1<<15 {
		return &sandbox.TerminalSize{Cols: 80, Rows: 24}
	}
	return &sandbox.TerminalSize{Cols: uint16(cols), Rows: uint16(rows)}
}

func (p *program) shell(ctx context.Context, fd int, req sandbox.RunRequest) (err error) {
	sys, err := p.open(ctx, func(o *app.Options) {
		o.Secrets, o.CommandLine = true, true
		// The timeout of runs does not apply to an interactive shell.
		o.Config.Run.MaxTimeout = 0
		req.Timeout = sandbox.Forever
	})
	if err != nil {
		return err
	}
	defer p.close(ctx, sys, &err)
	p.sayFallback(sys)

	if req.SandboxID == "" {
		if err := p.fetchImage(ctx, sys, req.New.Image); err != nil {
			return err
		}
	}
	run, err := sys.Engine.Start(ctx, sandbox.Local, req)
	if err != nil {
		return err
	}
	if req.SandboxID == "" {
		defer p.removeSandbox(ctx, sys, run.SandboxID)
	}

	// From here on each key goes to the sandbox, including Ctrl-C.
	state, err := term.MakeRaw(fd)
	if err != nil {
		return fmt.Errorf("prepare terminal: %w", err)
	}
	defer func() { err = errors.Join(err, restore(fd, state)) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go watchSize(ctx, fd, func() {
		// The next change tries again, and a shell with a wrong width is usable.
		_ = sys.Engine.Resize(ctx, sandbox.Local, run.ID, *terminalSize(fd))
	})
	go p.feed(ctx, sys, run.ID)
	err = sys.Engine.Follow(ctx, sandbox.Local, run.ID, func(_ sandbox.StreamName, data []byte) error {
		_, err := p.Out.Write(data)
		return err
	})
	if err != nil {
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTime)
		defer cancel()
		_, stopErr := sys.Engine.StopRun(stop, sandbox.Local, run.ID)
		return errors.Join(fmt.Errorf("show terminal: %w", err), stopErr)
	}
	if run, err = sys.Engine.Wait(ctx, sandbox.Local, run.ID); err != nil {
		return err
	}
	if err := restore(fd, state); err != nil { // before anything is printed
		return err
	}
	return p.verdict(run)
}

func restore(fd int, state *term.State) error {
	if err := term.Restore(fd, state); err != nil {
		return fmt.Errorf("restore terminal: %w", err)
	}
	return nil
}
