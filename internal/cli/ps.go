package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/operator"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func (p *program) psCommand() *cobra.Command {
	all := false
	cmd := &cobra.Command{
		Use:        "ps",
		SuggestFor: []string{"list", "ls", "sandboxes"},
		Short:      "List sandboxes",
		Long: `List the sandboxes of all servers and commands that share the state directory.
With --all, also list warm sandboxes at the end. Servers make warm sandboxes in
advance; they belong to no user yet. Stopped sandboxes are not listed, but
glovebox runs lists their runs.`,
		Example: `  glovebox ps
  glovebox ps --all
  glovebox ps --json | jq -r '.[].sandbox_id'`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			sys, err := p.open(cmd.Context(), looks)
			if err != nil {
				return err
			}
			defer p.close(cmd.Context(), sys, &err)
			list, err := sys.Sandboxes(cmd.Context())
			if err != nil {
				return err
			}
			warm, err := sys.Warm(cmd.Context())
			if err != nil {
				return err
			}
			if p.flags.json {
				return p.printSandboxes(list, warm, all)
			}
			if n := len(warm); n > 0 && !all {
				p.Say("warm sandboxes not shown: %d; use glovebox ps --all", n)
			}
			if len(list) == 0 && (!all || len(warm) == 0) {
				p.Say("no sandboxes")
				return nil
			}
			now := time.Now()
			showsServices := slices.ContainsFunc(list, func(s operator.Sandbox) bool { return len(s.Services) > 0 })
			var rows [][]string
			for _, s := range list {
				row := []string{
					s.ID, s.Name, stateOf(s.Sandbox), string(s.Principal), s.Driver, s.Image,
					console.Approximately(now.Sub(s.Created)), console.Approximately(s.Expires.Sub(now)),
				}
				if showsServices {
					row = append(row, services(s.Services))
				}
				rows = append(rows, row)
			}
			if all {
				for _, id := range warm {
					rows = append(rows, []string{id, "", stateWarm, "", "", "", "", ""})
				}
			}
			head := []string{"SANDBOX", "NAME", "STATE", "PRINCIPAL", "DRIVER", "IMAGE", "AGE", "ENDS IN"}
			if showsServices {
				head = append(head, "SERVICES")
			}
			err = p.PrintTable(head, rows)
			for _, s := range list {
				if h := s.Hibernation; h.Error != "" {
					p.Say("(!) %s: the last attempt to save or wake it failed: %s", s.ID, h.Error)
				}
			}
			return err
		},
	}
	cmd.Flags().BoolVarP(&all, "all", "a", false, "also list warm sandboxes, which servers have made in advance")
	p.addJSON(cmd)
	return cmd
}

// services lists services in one cell, with the runs that glovebox logs takes.
func services(list []sandbox.Run) string {
	cells := make([]string, 0, len(list))
	for _, r := range list {
		s := r.Service
		cell := fmt.Sprintf("%s %s %s", s.Name, s.State, r.ID)
		if s.Restarts > 0 {
			cell += fmt.Sprintf(" restarts %d", s.Restarts)
		}
		if s.LastExit != nil {
			cell += fmt.Sprintf(" exit %d", *s.LastExit)
		}
		for _, port := range s.Ports {
			cell += fmt.Sprintf(" :%d", port)
		}
		cells = append(cells, cell)
	}
	return strings.Join(cells, ", ")
}

// stateOf returns the state of a sandbox in one cell: of one on disk with its size, and
// with a mark if the last attempt to save or wake it failed.
func stateOf(s sandbox.Sandbox) string {
	cell := string(s.State)
	if h := s.Hibernation; !h.Saved.IsZero() {
		cell += " " + sandbox.FormatBytes(h.Bytes)
	}
	if s.Hibernation.Error != "" {
		cell += " (!)"
	}
	return cell
}

// stateWarm is the displayed state of a sandbox that was made ahead.
const stateWarm = "warm"

// printSandboxes prints a list of sandboxes, and of warm sandboxes if all is
// set.
func (p *program) printSandboxes(list []operator.Sandbox, warm []string, all bool) error {
	type made struct {
		ID    string `json:"sandbox_id"`
		State string `json:"state"`
	}
	items := []any{}
	for _, s := range list {
		items = append(items, s)
	}
	if all {
		for _, id := range warm {
			items = append(items, made{id, stateWarm})
		}
	}
	return p.PrintJSON(items)
}
