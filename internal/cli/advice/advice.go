// Package advice says on the command line what the engine says to a model: it names
// flags and commands instead of tools and arguments.
//
// Only the command line imports it.
package advice

import (
	"regexp"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A commandHint says for the command line what a hint of the engine says to a
// model. The sign … in hint stands for a variable part, which say has as $1, $2.
type commandHint struct{ hint, say string }

// commandHints are the hints that name tools and their arguments, of errors that
// a command can meet. A test compares them with docs/reference/errors.md.
var commandHints = []commandHint{
	// Of verdicts.
	{"make a sandbox with more disk, or remove files that are not needed", "allow more with --disk, like --disk 4GiB, or write less"},
	{"remove files of the workspace that are not needed, or use another workspace",
		"remove files of the workspace, name another one with --workspace, or raise workspace.size in the configuration"},
	{"make a new sandbox and run it again", "run it again"},
	{"make a new sandbox", "run it again"},
	{"make a new sandbox, or set a later end in time", "run it again"},
	{"make a new sandbox, with a longer lifetime if the work needs it",
		"run it again; if it needs more time, raise sandbox.default.lifetime in the configuration"},
	{"make a new sandbox; files of a workspace are still there", "run it again; files of a workspace are still there"},
	{"read the files in the sandbox while that lives, or run something there to copy them again",
		"the files that were not copied are lost with the sandbox: run it again"},

	// Of errors.
	{"ask for less, or ask the operator to raise the maximum of runs",
		"use a shorter --timeout, or raise run.max_timeout in the configuration"},
	{"ask for …, run as root or in a systemd unit with Delegate=yes, or accept it with --allow-unenforced cpu",
		"use --cpus $1, run as root or in a systemd unit with Delegate=yes, or accept it with --allow-unenforced cpu"},
	{"ask for less, or ask the operator to raise the maximum", "use less, or raise sandbox.maximum in the configuration"},
	{"ask the operator to add it to images.registries; that list has …", "add it to images.registries in the configuration; that list has $1"},
	{"the operator allows registries by images.registries; allowed are …", "add it to images.registries in the configuration; allowed are $1"},
	{"the operator allows registries by images.registries", "add it to images.registries in the configuration"},
	{"check the ID in the list of sandboxes, or make a new sandbox", "list sandboxes with glovebox ps"},
	{"check the name in the list of workspaces; the first sandbox with a workspace makes it",
		"list workspaces with glovebox workspace list; glovebox run --workspace NAME makes one"},
	{"list the directory to see what is there", "check the path; in a workspace, glovebox workspace export NAME | tar -t lists the files"},
	{"runs are kept for a while after their end; start it again", "list runs with glovebox runs"},
	{"make a new sandbox; what was in this one is gone", "list sandboxes with glovebox ps; what was in this one is gone"},
	{"make another with the network that it needs", "make another with --network, like glovebox run --network example.com"},
	{"delete a workspace that you do not need", "delete one with glovebox workspace delete NAME"},
	{"delete the workspace, or export it where it can be cleaned up",
		"delete it with glovebox workspace delete, or export it with glovebox workspace export where it can be cleaned up"},
	{"remove files by the file operations, or delete workspaces", "remove files of the workspace, or delete it with glovebox workspace delete"},
	{"stop the sandboxes that have it first", "first stop the sandboxes that have it: see glovebox ps and glovebox stop"},
	{"try again later, or ask the operator to free space on the disk of the state directory",
		"free space on the disk of the state directory, for example with glovebox images prune"},
	{"leave the image out", "leave out --image"},
	{"leave the network out, or run the server on Linux", "leave out --network, or use Linux"},
	{"leave the workspace out, or use another driver: glovebox doctor lists them",
		"leave out --workspace, or use another driver: glovebox doctor lists them"},
	{"check the name and the tag; the server's log tells the operator why, and images.registries allows registries without a public address",
		"check the name and the tag; images.registries in the configuration allows registries without a public address"},
}

// pattern returns the expression that matches the hint.
func (c commandHint) pattern() *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(c.hint), "…", "(.*)") + "$")
}

// ForCommands returns a hint in the words of the command line.
func ForCommands(hint string) string {
	for _, c := range commandHints {
		if p := c.pattern(); p.MatchString(hint) {
			return p.ReplaceAllString(hint, c.say)
		}
	}
	return hint
}

// wantedNetwork finds the network that a verdict recommends.
var wantedNetwork = regexp.MustCompile(`^(the sandbox's network does not allow .*): if it needs that, make a sandbox with network "([^"]+)"(; .*)?$`)

// noNetwork begins the next step of a verdict where there is no network.
const noNetwork = "the sandbox has no network"

// Next returns the next step of a verdict for this command line: it names flags
// where the verdict's own words name arguments of tools.
func Next(v sandbox.Verdict) string {
	switch v.Code {
	case sandbox.OutOfMemory:
		return "allow more with --memory, like --memory 1GiB, or process the data in smaller pieces"
	case sandbox.Timeout:
		return "allow more time with --timeout, like --timeout 5m, or split the work"
	case sandbox.TooManyProcesses:
		return "allow more with --processes, or start fewer processes at a time"
	}
	if m := wantedNetwork.FindStringSubmatch(v.NextStep); m != nil {
		return m[1] + "; to allow it, use --network " + m[2]
	}
	if strings.HasPrefix(v.NextStep, noNetwork) {
		return noNetwork + "; to allow a host, use --network, like --network example.com"
	}
	return ForCommands(v.NextStep)
}

// Once returns the text of an error without a part that repeats the end of the
// part before it, as in "measure workspace: workspace: ", or that the next part
// repeats, as in "listen: listen tcp".
func Once(text string) string {
	parts := strings.Split(text, ": ")
	out := parts[:1]
	for _, part := range parts[1:] {
		last := &out[len(out)-1]
		switch {
		case part == *last || strings.HasSuffix(*last, " "+part):
		case strings.HasPrefix(part, *last+" "):
			*last = part
		default:
			out = append(out, part)
		}
	}
	return strings.Join(out, ": ")
}
