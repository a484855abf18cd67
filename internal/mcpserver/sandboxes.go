package mcpserver

import (
	"fmt"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/answer"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// sandboxOutput is the output schema of all tools that return a sandbox.
const sandboxOutput = `{"type":"object","properties":{` +
	`"sandbox_id":{"type":"string"},"state":{"type":"string"},"receipt":{"type":"array","items":{"type":"object"}}}}`

// sandboxResult is a sandbox's structuredContent. Limits have the names and
// units of create_sandbox's arguments.
type sandboxResult struct {
	ID        string          `json:"sandbox_id"`
	Name      string          `json:"name,omitempty"`
	State     sandbox.State   `json:"state"`
	Driver    string          `json:"driver"`
	Image     string          `json:"image"`
	Network   sandbox.Network `json:"network"`
	Workspace string          `json:"workspace,omitempty"`
	CPUs      float64         `json:"cpus"`
	MemoryMB  int64           `json:"memory_mb"`
	DiskMB    int64           `json:"disk_mb"`
	Processes int             `json:"processes"`
	Idle      int64           `json:"idle_seconds"`
	Lifetime  int64           `json:"lifetime_seconds"`
	Created   time.Time       `json:"created_at"`
	Used      time.Time       `json:"last_used_at,omitzero"`
	Expires   time.Time       `json:"expires_at,omitzero"`
	Ended     time.Time       `json:"ended_at,omitzero"`
	Cause     string          `json:"cause,omitempty"`
	// Hibernation is the saved state of the sandbox, or why there is none.
	Hibernation sandbox.Hibernation `json:"hibernation,omitzero"`
	// Contexts are the contexts of a running sandbox. Nil: not known.
	Contexts []sandbox.Context `json:"contexts,omitzero"`
	Receipt  sandbox.Receipt   `json:"receipt,omitempty"`
	// Services are the services that have not ended, oldest first.
	Services []sandbox.Run `json:"services,omitempty"`
	// Runs are the last runs, oldest first. Nil: not asked for.
	Runs []runLine `json:"runs,omitempty"`
	Note string    `json:"note,omitempty"`
}

// A runLine is a run in the result of get_sandbox.
type runLine struct {
	ID      string              `json:"run_id"`
	Status  sandbox.RunStatus   `json:"status"`
	Verdict sandbox.VerdictCode `json:"verdict,omitempty"`
	Started time.Time           `json:"started_at"`
}

// text returns the run for models.
func (r runLine) text() string {
	if r.Status == sandbox.RunFinished {
		return fmt.Sprintf("run %s: %s", r.ID, r.Verdict)
	}
	return fmt.Sprintf("run %s: %s since %s", r.ID, r.Status, r.Started.UTC().Format(time.RFC3339))
}

func newSandboxResult(sb sandbox.Sandbox) sandboxResult {
	return sandboxResult{
		ID: sb.ID, Name: sb.Name, State: sb.State, Hibernation: sb.Hibernation,
		Driver: sb.Driver, Image: sb.Image, Network: sb.Network, Workspace: sb.Workspace,
		CPUs:      sb.Limits.CPUs,
		MemoryMB:  sb.Limits.MemoryBytes >> 20,
		DiskMB:    sb.Limits.DiskBytes >> 20,
		Processes: sb.Limits.Processes,
		Idle:      int64(sb.Limits.Idle / time.Second),
		Lifetime:  int64(sb.Limits.Lifetime / time.Second),
		Created:   sb.Created,
		Used:      sb.Used,
		Expires:   sb.Expires,
		Ended:     sb.Ended,
		Cause:     sb.Cause,
		Receipt:   sb.Receipt,
	}
}

// line returns the sandbox in one line.
func (r sandboxResult) line() string {
	facts := []string{r.ID}
	if r.Name != "" {
		facts = append(facts, fmt.Sprintf("%q", r.Name))
	}
	facts = append(facts, string(r.State), "image "+r.Image, r.Driver)
	switch {
	case r.State == sandbox.Stopped && r.Cause != "":
		facts = append(facts, r.Cause)
	case r.State != sandbox.Stopped && !r.Expires.IsZero():
		facts = append(facts, "stops at "+r.Expires.UTC().Format(time.RFC3339)+" if unused")
	}
	return strings.Join(facts, ", ")
}

// text returns the sandbox and its receipt for models.
func (r sandboxResult) text() string {
	var b strings.Builder
	b.WriteString(r.line())
	fmt.Fprintf(&b, "\n%g CPUs, %d MB memory, %d MB disk, %d processes, network %s", r.CPUs, r.MemoryMB, r.DiskMB, r.Processes, r.Network)
	if r.Workspace != "" {
		fmt.Fprintf(&b, ", workspace %q", r.Workspace)
	}
	b.WriteString(answer.HibernationText(r.Hibernation))
	for _, c := range r.Contexts {
		fmt.Fprintf(&b, "\ncontext %s of %s: %d runs", c.Name, c.Language, c.Runs)
		if c.Busy {
			b.WriteString(", busy")
		}
	}
	for _, run := range r.Services {
		b.WriteString("\n" + answer.ServiceText(run))
	}
	for _, run := range r.Runs {
		b.WriteString("\n" + run.text())
	}
	for _, c := range r.Receipt {
		if c.Enforced {
			fmt.Fprintf(&b, "\n%s: %s, by %s", c.Name, c.Value, c.Mechanism)
		} else {
			fmt.Fprintf(&b, "\n%s: NOT ENFORCED (asked: %s)", c.Name, c.Asked)
		}
	}
	return b.String()
}
