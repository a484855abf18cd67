package profile

import (
	"context"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Output is what a run wrote.
type Output struct {
	sandbox.Output
	// Merged is both streams in the order in which they came. Where not all
	// is shown it is one after the other.
	Merged string
}

// ReadOutput returns the output of a run that has finished, within budget bytes.
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

// Lines is text that ends with an end of line, unless it is empty.
func Lines(text string) string {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text
}
