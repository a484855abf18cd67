package cli

import (
	"context"
	"errors"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/replay"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) replayCommand() *cobra.Command {
	o := replay.Options{Sleep: pause}
	cmd := &cobra.Command{
		Use:   "replay [flags] RECORDING",
		Short: "Play a recording of a terminal",
		Long: `Play a recording of a terminal, in the form asciicast v2, as the dashboard saves it.
The recording - is standard input. Ctrl-C ends it.

A program of the sandbox may have written anything into a recording. Text, colours
and movements of the cursor are played. Sequences that would command your terminal
are left out: titles, links, pictures, the clipboard, and questions whose answers a
shell would take for keys. With --raw, the recorded bytes are written as they are.`,
		Example: `  glovebox replay glovebox.cast
  glovebox replay --speed 4 --idle-limit 500ms glovebox.cast`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return sandbox.WithHint(console.UsageError("replay needs one recording, but has %d arguments", len(args)), "the page of a terminal in the dashboard saves recordings")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !(o.Speed > 0) || math.IsInf(o.Speed, 0):
				return console.UsageError("--speed: %v is not above 0", o.Speed)
			case o.IdleLimit < 0:
				return console.UsageError("--idle-limit: %v is below 0", o.IdleLimit)
			}
			o.Began = p.compareSize
			return p.replay(cmd.Context(), args[0], o)
		},
	}
	cmd.Flags().Float64Var(&o.Speed, "speed", 1, "play `times` as fast as recorded")
	cmd.Flags().DurationVar(&o.IdleLimit, "idle-limit", 2*time.Second, "shorten longer pauses to this `time`; 0 keeps them")
	cmd.Flags().BoolVar(&o.Raw, "raw", false, "write the recorded bytes as they are, with all escape sequences")
	return cmd
}

func (p *program) replay(ctx context.Context, name string, o replay.Options) (err error) {
	in := p.In
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return console.UsageError("open recording: %w", err)
		}
		defer f.Close()
		in = f
	}
	err = replay.Play(ctx, in, p.Out, o)
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return err
	}
	return sandbox.Wrap(err, "replay", name)
}

// compareSize says if the terminal is smaller than the recording's.
func (p *program) compareSize(h replay.Head) {
	fd, ok := console.Terminal(p.Out)
	if !ok {
		return
	}
	if size := terminalSize(fd); h.Width > int(size.Cols) || h.Height > int(size.Rows) {
		p.Say("the recording is of a terminal with %d columns and %d rows, and this one has %d and %d", h.Width, h.Height, size.Cols, size.Rows)
	}
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
