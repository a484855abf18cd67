package answer

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of a list of runs: the runs, and the characters of a program's first line.
const (
	maxListedRuns  = 10
	maxProgramLine = 80
)

// RunList is the structuredContent of a list of runs.
type RunList struct {
	Runs     []RunLine `json:"runs"`
	NextStep string    `json:"next_step,omitempty"`
}

// A RunLine is a run in a list.
type RunLine struct {
	RunID     string              `json:"run_id"`
	SandboxID string              `json:"sandbox_id"`
	Status    sandbox.RunStatus   `json:"status"`
	Verdict   sandbox.VerdictCode `json:"verdict,omitempty"`
	Started   time.Time           `json:"started_at"`
	Language  string              `json:"language,omitempty"`
	Program   string              `json:"program,omitempty"` // its first line
}

// NewRunList returns the runs in progress, and then the last others, of runs with the
// newest first.
func NewRunList(runs []sandbox.ListedRun) RunList {
	list := RunList{Runs: []RunLine{}}
	for _, going := range []bool{true, false} {
		for _, r := range runs {
			if (r.Status == sandbox.RunRunning) == going && len(list.Runs) < maxListedRuns {
				list.Runs = append(list.Runs, newRunLine(r))
			}
		}
	}
	if len(list.Runs) > 0 {
		list.NextStep = "get_run with a run_id shows the run, and wait_seconds waits for its end"
	}
	return list
}

func newRunLine(r sandbox.ListedRun) RunLine {
	line := RunLine{RunID: r.ID, SandboxID: r.SandboxID, Status: r.Status, Started: r.Started, Language: r.Language}
	if r.Status == sandbox.RunFinished {
		line.Verdict = r.Verdict.Code
	}
	for text := range strings.Lines(r.Program) {
		if text = strings.TrimSpace(text); text != "" {
			line.Program = FirstRunes(text, maxProgramLine)
			break
		}
	}
	return line
}

// Rename gives the tools that the server's own sentences mention their names for the
// client.
func (l *RunList) Rename(rename func(string) string) { l.NextStep = rename(l.NextStep) }

// Text returns the list for models. Programs are quoted, so that no program can look
// like a line of the list.
func (l RunList) Text() string {
	if len(l.Runs) == 0 {
		return "There are no runs."
	}
	lines := make([]string, 0, len(l.Runs)+1)
	for _, r := range l.Runs {
		facts := []string{fmt.Sprintf("%s: %s", r.RunID, r.Verdict)}
		if r.Status != sandbox.RunFinished {
			facts[0] = fmt.Sprintf("%s: %s", r.RunID, r.Status)
		}
		facts = append(facts, "started "+r.Started.UTC().Format(time.RFC3339), "sandbox "+r.SandboxID)
		if r.Language != "" {
			facts = append(facts, r.Language)
		}
		if r.Program != "" {
			facts = append(facts, fmt.Sprintf("%q", r.Program))
		}
		lines = append(lines, strings.Join(facts, ", "))
	}
	return strings.Join(slices.Concat(lines, []string{l.NextStep + "."}), "\n")
}
