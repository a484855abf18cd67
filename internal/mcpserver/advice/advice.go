// Package advice says to a model what the engine says to every client: it names
// tools and arguments where the engine's hints name actions.
//
// Only package mcpserver imports it, for the native tools. The tools of profiles have
// other names.
package advice

import (
	"regexp"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A toolHint is a hint of the engine, and its words for tools.
type toolHint struct{ hint, say string }

// toolHints are the hints and next steps that a tool can do something about. A test
// compares them with docs/reference/errors.md.
var toolHints = []toolHint{
	// Of verdicts.
	{"make a sandbox with more memory, or process the data in smaller pieces",
		"make a sandbox with create_sandbox and a larger memory_mb, or process the data in smaller pieces"},
	{"make a sandbox with more disk, or remove files that are not needed",
		"make a sandbox with create_sandbox and a larger disk_mb, or remove files that are not needed"},
	{"make a sandbox with a higher limit, or start fewer processes at a time", "start fewer processes at a time"},
	{"ask for a longer timeout, or split the work", "set a larger timeout_seconds, or split the work"},
	{"make a new sandbox and run it again", "make a sandbox with create_sandbox, and run it again"},
	{"make a new sandbox", "make a sandbox with create_sandbox"},
	{"make a new sandbox, or set a later end in time", "make a sandbox with create_sandbox"},
	{"make a new sandbox, with a longer lifetime if the work needs it",
		"make a sandbox with create_sandbox, and a larger lifetime_seconds if the work needs it"},
	{"make a new sandbox; files of a workspace are still there",
		"make a sandbox with create_sandbox; with the same workspace it has the files again"},

	// Of errors.
	{"ask for less, or ask the operator to raise the maximum of runs",
		"set a smaller timeout_seconds, or ask the operator to raise run.max_timeout"},
	{"check the ID in the list of sandboxes, or make a new sandbox", "list_sandboxes lists sandboxes, and create_sandbox makes one"},
	{"check the name in the list of workspaces; the first sandbox with a workspace makes it",
		"list_workspaces lists workspaces; create_sandbox with a new name as workspace makes one"},
	{"list the directory to see what is there", "check the path with list_files"},
	{"make a new sandbox; what was in this one is gone", "make a sandbox with create_sandbox; the files of this one are gone"},
	{"make another with the network that it needs", "make another with create_sandbox, and give it the network that it needs"},
	{"delete a workspace that you do not need", "delete one with delete_workspace"},
	{"delete the workspace, or export it where it can be cleaned up", "delete it with delete_workspace"},
}

// networks are next steps that name a network, with their words for tools.
var networks = []struct {
	pattern *regexp.Regexp
	say     string
}{
	{regexp.MustCompile(`^(the sandbox's network does not allow .*): if it needs that, make a sandbox with (network "[^"]+".*)$`),
		`$1: if it needs that, make a sandbox with create_sandbox and $2`},
	{regexp.MustCompile(`^(the sandbox has no network): if it needs one, make a sandbox whose network names the hosts, (.*)$`),
		`$1: if it needs one, make a sandbox with create_sandbox and a network that names the hosts, $2`},
}

// For returns a hint or a next step in the words of the tools.
func For(hint string) string {
	for _, h := range toolHints {
		if h.hint == hint {
			return h.say
		}
	}
	if strings.HasPrefix(hint, "the sandbox") {
		for _, n := range networks {
			if n.pattern.MatchString(hint) {
				return n.pattern.ReplaceAllString(hint, n.say)
			}
		}
	}
	return hint
}

// Error returns an error with its hint in the words of the tools.
func Error(err error) error {
	hint := sandbox.HintOf(err)
	if say := For(hint); say != hint {
		return sandbox.WithHint(err, "%s", say)
	}
	return err
}

// Verdict returns a verdict with its next step in the words of the tools.
func Verdict(v sandbox.Verdict) sandbox.Verdict {
	v.NextStep = For(v.NextStep)
	return v
}
