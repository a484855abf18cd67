package operator

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// A HistoryQuery selects runs. A zero field selects all.
type HistoryQuery struct {
	// Principal is a principal, or the name of a token.
	Principal string
	// Whose is exactly a principal. It excludes Principal.
	Whose     sandbox.Principal
	SandboxID string
	Verdict   sandbox.VerdictCode
	// Label is the value of the label by which usage is counted.
	Label string
	// Runs started at Since or later, and before Until.
	Since, Until time.Time
	Limit        int // at most so many, the newest
}

// A Run is a run with its principal and its program.
type Run struct {
	sandbox.Run
	Principal sandbox.Principal `json:"principal"`
	Language  string            `json:"language,omitempty"` // "" for a command
	// Program is the beginning of the code or command. ProgramBytes is its full
	// size. Both are empty for runs of versions that did not record them.
	Program      string `json:"program,omitempty"`
	ProgramBytes int64  `json:"program_bytes,omitempty"`
}

// History returns runs of all principals, newest first. Runs in progress have no
// verdict. Programs have at most 1,000 characters; Run returns more.
func (o *Operator) History(ctx context.Context, q HistoryQuery) ([]Run, error) {
	if q.SandboxID != "" && !sandbox.ValidID(q.SandboxID) {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the ID of a sandbox", q.SandboxID), "glovebox ps lists them")
	}
	f := store.HistoryFilter{SandboxID: q.SandboxID, Verdict: q.Verdict, Label: q.Label, From: q.Since, To: q.Until, Limit: q.Limit}
	if q.Principal != "" {
		f.Principals = []sandbox.Principal{sandbox.Principal(q.Principal), sandbox.TokenPrincipal(q.Principal)}
	}
	if q.Whose != "" {
		f.Principals = []sandbox.Principal{q.Whose}
	}
	records, err := o.store.History(ctx, f)
	if err != nil {
		return nil, err
	}
	list := make([]Run, 0, len(records))
	for _, r := range records {
		list = append(list, Run{r.Run, r.Principal, r.Language, r.Program, r.ProgramBytes})
	}
	return list, nil
}

// Run returns the record of any principal's run. The error wraps
// [sandbox.NotFound] if there is none.
func (o *Operator) Run(ctx context.Context, id string) (Run, error) {
	r, err := o.store.Run(ctx, id)
	if errors.Is(err, sandbox.NotFound) {
		err = sandbox.WithHint(err, "glovebox runs lists runs")
	}
	return Run{r.Run, r.Principal, r.Language, r.Program, r.ProgramBytes}, err
}

// RunsOf returns the run with that ID, or all runs of the sandbox with that ID,
// oldest first, of any principal. The error wraps [sandbox.NotFound] if there is
// neither.
func (o *Operator) RunsOf(ctx context.Context, id string) ([]Run, error) {
	switch {
	case sandbox.ValidRunID(id):
		r, err := o.Run(ctx, id)
		return []Run{r}, err
	case sandbox.ValidID(id):
		if _, err := o.record(ctx, id); err != nil {
			return nil, err
		}
		list, err := o.History(ctx, HistoryQuery{SandboxID: id})
		slices.Reverse(list)
		return list, err
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "%q is not the name of a run or a sandbox", id), "glovebox runs lists runs")
}
