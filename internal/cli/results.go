package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/cli/results"
	"github.com/glovebox-dev/glovebox/internal/cli/screen"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// showResults shows or saves the results of a run, and says what becomes of them.
func (p *program) showResults(ctx context.Context, sys *app.System, id string, dir *results.Dir) error {
	res, err := sys.Engine.Results(ctx, sandbox.Local, id)
	if err != nil {
		return err
	}
	var show screen.Show
	if fd, ok := console.Terminal(p.Out); ok && len(res.Results) > 0 {
		show = screen.Pictures(fd, p.Getenv)
	}
	unseen := 0
	for _, r := range res.Results {
		f, ok := results.FileOf(r)
		if !ok {
			res.Omitted++
			continue
		}
		shown := false
		if show != nil {
			if shown, err = show(p.Out, screen.Picture{MIME: f.MIME, Data: f.Data, Sixel: results.SixelOf(r)}); err != nil {
				return err
			}
		}
		if dir != nil {
			name, err := dir.Save(f)
			if err != nil {
				return err
			}
			p.Say("saved: %s", name)
		} else if !shown {
			unseen++
		}
	}
	switch {
	case unseen == 1:
		p.Say("1 plot was drawn: save it with --results DIR")
	case unseen > 1:
		p.Say("%d plots were drawn: save them with --results DIR", unseen)
	}
	if res.Omitted > 0 {
		p.Say("lost: %d plots, which were too many, too large or broken", res.Omitted)
	}
	return nil
}

// maxNamedFiles is how many changed files a run's line names.
const maxNamedFiles = 10

// changesLine returns a line with the files that a run changed in its workspace,
// or "" if it changed none.
func changesLine(c *sandbox.Changes) string {
	if c == nil || len(c.Files) == 0 {
		return ""
	}
	marks := map[sandbox.Change]string{sandbox.FileCreated: "+", sandbox.FileModified: "~", sandbox.FileRemoved: "-"}
	line := "files:"
	named := c.Files[:min(len(c.Files), maxNamedFiles)]
	for _, f := range named {
		line += " " + marks[f.Change] + shownName(f.Path)
	}
	if more := c.Created + c.Modified + c.Removed - len(named); more > 0 {
		line += fmt.Sprintf(" and %d more", more)
	}
	return line
}

// shownName returns the name of a file as one word, in quotes if need be: a
// program in a sandbox chose it.
func shownName(name string) string {
	odd := func(r rune) bool { return r == ' ' || r == '"' || !strconv.IsPrint(r) }
	if strings.ContainsFunc(name, odd) {
		return strconv.Quote(name)
	}
	return name
}
