package sandbox

import (
	"math"
	"slices"
	"strings"
)

// A Problem describes an error to programs: MCP, HTTP and the command line
// return the same fields.
type Problem struct {
	Kind     Kind   `json:"kind"`
	Message  string `json:"message"`
	Argument string `json:"argument,omitempty"` // the argument at fault
	Hint     string `json:"hint,omitempty"`
	// RetryAfter is the time, in seconds, after which a retry may succeed.
	// Zero: not known.
	RetryAfter int `json:"retry_after_seconds,omitempty"`
}

// ProblemOf describes err. arguments are the names of the call's arguments.
func ProblemOf(err error, arguments []string) Problem {
	return Problem{
		Kind:       KindOf(err),
		Message:    err.Error(),
		Argument:   argumentOf(err, arguments),
		Hint:       HintOf(err),
		RetryAfter: int(math.Ceil(RetryAfterOf(err).Seconds())),
	}
}

// argumentOf returns the argument that an error names, or "". An error about an
// argument begins with its name, after the operations that failed, which are
// phrases of several words.
func argumentOf(err error, arguments []string) string {
	for rest := err.Error(); ; {
		first, after, ok := strings.Cut(rest, ": ")
		if !ok {
			return ""
		}
		if !strings.Contains(first, " ") {
			name, _, _ := strings.Cut(first, ".") // env.NAME
			name, _, _ = strings.Cut(name, "[")   // packages[0]
			for _, unit := range []string{"", "_mb", "_seconds"} {
				if slices.Contains(arguments, name+unit) {
					return name + unit
				}
			}
			return ""
		}
		rest = after
	}
}
