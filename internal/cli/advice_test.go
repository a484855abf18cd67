package cli

import (
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestAdvice(t *testing.T) {
	for _, c := range []struct {
		v    sandbox.Verdict
		want string
	}{
		{sandbox.Verdict{Code: sandbox.OutOfMemory, NextStep: "make a sandbox with more memory"}, "allow more with --memory, like --memory 1GiB, or process the data in smaller pieces"},
		{sandbox.Verdict{Code: sandbox.Failed, NextStep: `the sandbox's network does not allow a.example: if it needs that, make a sandbox with network "b.example,a.example"`},
			"the sandbox's network does not allow a.example; to allow it, use --network b.example,a.example"},
		{sandbox.Verdict{Code: sandbox.Failed, NextStep: `the sandbox has no network: if it needs one, make a sandbox`}, "the sandbox has no network; to allow a host, use --network, like --network example.com"},
		{sandbox.Verdict{Code: sandbox.SandboxLost, NextStep: "run it again"}, "run it again"},
		{sandbox.Verdict{Code: sandbox.Failed}, ""},
	} {
		if got := advice(c.v); got != c.want {
			t.Errorf("%s, %q: %q, want %q", c.v.Code, c.v.NextStep, got, c.want)
		}
	}
}
