package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) languagesCommand() *cobra.Command {
	var f newFlags
	cmd := &cobra.Command{
		Use:   "languages",
		Short: "List the languages of a sandbox",
		Long: `List the languages of a sandbox, with their versions and notable packages. The
command makes a sandbox for this and removes it. For a missing language, the list
says how to get it.`,
		Example: `  glovebox languages
  glovebox languages --json | jq '.[] | select(.language == "python").packages'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			req, err := f.request(p.Getenv)
			if err != nil {
				return err
			}
			sys, err := p.open(cmd.Context(), func(o *app.Options) { o.CommandLine = true })
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			list, id, err := sys.Engine.Languages(cmd.Context(), sandbox.Local, "", req)
			if err != nil {
				return err
			}
			defer p.removeSandbox(cmd.Context(), sys, id)
			if p.flags.json {
				return p.PrintJSON(list)
			}
			var rows [][]string
			for _, l := range list {
				rows = append(rows, languageRow(l))
			}
			return p.PrintTable([]string{"LANGUAGE", "VERSION", "CONTEXTS", "PACKAGES"}, rows)
		},
	}
	f.add(cmd)
	p.addJSON(cmd)
	return cmd
}

func languageRow(l sandbox.Language) []string {
	if l.Program == "" {
		return []string{l.Name, "-", "", l.Missing}
	}
	contexts, packages := "", ""
	if l.Contexts {
		contexts = "yes"
	}
	if n := len(l.Packages); n > 0 {
		var names []string
		for _, pkg := range l.Packages[:min(n, 5)] {
			names = append(names, pkg.Name+" "+pkg.Version)
		}
		packages = strings.Join(names, ", ")
		if n > 5 {
			packages += fmt.Sprintf(" and %d more", n-5)
		}
	}
	return []string{l.Name, l.Version, contexts, packages}
}
