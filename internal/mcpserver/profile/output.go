package profile

import (
	"context"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Output is the output of a run.
type Output struct {
	sandbox.Output
	// Merged has both streams in the order in which they were written. If a part
	// was omitted, stderr follows stdout.
	Merged string
}

// ReadOutput returns the output of a finished run, within budget bytes.
func ReadOutput(ctx context.Context, e Engine, p sandbox.Principal, runID string, budget int) (Output, error) {
	out, err := e.Output(ctx, p, runID, budget)
	if err != nil {
		return Output{}, err
	}
	o := Output{Output: out}
	switch {
	case out.Stderr == "":
		o.Merged = out.Stdout
	case out.Stdout == "":
		o.Merged = out.Stderr
	case out.Omitted == sandbox.Omitted{}:
		var b strings.Builder
		err = e.Follow(ctx, p, runID, func(_ sandbox.StreamName, data []byte) error {
			b.Write(data)
			return nil
		})
		o.Merged = strings.ToValidUTF8(b.String(), "\uFFFD")
	default:
		o.Merged = Lines(out.Stdout) + out.Stderr
	}
	return o, err
}

// Lines adds a newline at the end of text, unless text is empty or has one.
func Lines(text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}
