package answer

import (
	"fmt"
	"mime"
	"path"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/advice"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Run is a run's structuredContent.
type Run struct {
	RunID     string            `json:"run_id"`
	SandboxID string            `json:"sandbox_id"`
	Status    sandbox.RunStatus `json:"status"`
	Verdict   *sandbox.Verdict  `json:"verdict,omitempty"`
	ExitCode  *int              `json:"exit_code,omitempty"`
	Stdout    string            `json:"stdout,omitempty"`
	Stderr    string            `json:"stderr,omitempty"`
	Omitted   sandbox.Omitted   `json:"omitted,omitzero"`
	// Cursor is where the complete output ends, and NextStep says how to go on
	// there. Both are empty for a finished run with all of its output.
	Cursor   string `json:"cursor,omitempty"`
	NextStep string `json:"next_step,omitempty"`
	// Notes are sentences of the server that no other field has. Render sets them.
	Notes    []string             `json:"notes,omitempty"`
	Page     *Page                `json:"page,omitempty"`
	Results  []sandbox.ResultForm `json:"results,omitempty"`
	Error    *sandbox.RunError    `json:"error,omitempty"`
	Files    []ChangedFile        `json:"files,omitempty"`
	Changed  changed              `json:"changed,omitzero"`
	Duration int64                `json:"duration_ms"`
	Usage    usage                `json:"usage,omitzero"`
	Network  *sandbox.RunNetwork  `json:"network,omitempty"`

	Context *sandbox.RunContext   `json:"context,omitempty"`
	Input   *sandbox.InputRequest `json:"waits_for,omitempty"`
	Service *sandbox.Service      `json:"service,omitempty"`
	// Rollback says whether a failed run was undone.
	Rollback *sandbox.Rollback `json:"rollback,omitempty"`

	answer string         // how to answer a run that waits for input
	said   []string       // notes for both halves
	output sandbox.Output // with the lengths of its streams
	parts  []part         // of results
	left   int            // number of results that were not kept

	changes *sandbox.Changes // in the workspace
	shown   []mcp.Content    // pictures of files, and links to files
	unshown []string         // why other pictures are not shown
}

// usage is what a run consumed. Zero is not known, so it is left out.
type usage struct {
	CPUMillis       int64 `json:"cpu_ms,omitempty"`
	PeakMemoryBytes int64 `json:"peak_memory_bytes,omitempty"`
}

// changed counts the changed files, including those that are not listed.
type changed struct {
	Created  int `json:"created,omitempty"`
	Modified int `json:"modified,omitempty"`
	Removed  int `json:"removed,omitempty"`
}

// NewRun combines a run with the part of its output that is shown.
func NewRun(r sandbox.Run, o sandbox.Output, now time.Time) Run {
	end := r.Ended
	if end.IsZero() {
		end = now
	}
	res := Run{
		RunID:     r.ID,
		SandboxID: r.SandboxID,
		Status:    r.Status,
		ExitCode:  r.ExitCode,
		Stdout:    o.Stdout,
		Stderr:    o.Stderr,
		Omitted:   o.Omitted,
		Duration:  end.Sub(r.Started).Milliseconds(),
		Usage:     usage(r.Usage),
		Context:   r.Context,
		Input:     r.Input,
		Service:   r.Service,
		Rollback:  r.Rollback,
		output:    o,
		answer:    "answer with send_input",
	}
	if n := r.Network; n != nil && len(n.Reached)+len(n.Blocked)+n.More > 0 {
		res.Network = n
	}
	if r.Status == sandbox.RunFinished {
		v := advice.Verdict(r.Verdict)
		res.Verdict = &v
	}
	res.goOn(o)
	return res
}

// AddResults adds a run's results, within a budget in bytes.
func (r *Run) AddResults(run sandbox.Run, res sandbox.Results, budget int) {
	r.Results, r.parts = presentResults(run, res, budget)
	r.left = res.Omitted
	if res.Error != nil {
		brief := *res.Error
		brief.Traceback = "" // stderr has it
		r.Error = &brief
	}
}

// leftText says how many results were not kept.
func (r Run) leftText() string {
	return fmt.Sprintf("%d further results were too many or too large to keep.", r.left)
}

// notes returns the sentences of the text that no other field has.
func (r Run) notes() []string {
	var notes []string
	for _, p := range r.parts {
		notes = append(notes, p.unshown...)
	}
	notes = append(notes, r.unshown...)
	if r.Input != nil {
		notes = append(notes, "It waits for a line of input: "+r.answer+".")
	}
	if r.left > 0 {
		notes = append(notes, r.leftText())
	}
	return append(notes, r.said...)
}

// Render returns the run as a tool's result. isError is true exactly if the
// verdict is not ok.
func (r Run) Render() (*mcp.CallToolResult, error) {
	r.Notes = r.notes()
	res, err := New(r, "")
	if err != nil {
		return nil, err
	}
	w := weaver{contents: r.read(r.parts)}
	w.add(r.shown...)
	res.Content = w.contents
	res.IsError = r.Verdict != nil && r.Verdict.Code != sandbox.OK
	return res, nil
}

// Entry returns the run without its results, as one entry of a log for models. It
// indents each line of output. No line from the server is indented, so the output
// cannot imitate one.
func (r Run) Entry() string {
	text := r.facts(r.output.Stdout+r.output.Stderr != "")
	for _, c := range weave(r.output, nil) {
		output := strings.TrimSuffix(c.(*mcp.TextContent).Text, "\n")
		text += "\n  " + strings.ReplaceAll(output, "\n", "\n  ")
	}
	return text
}

// read returns the run for models: first the server's text, and then the output
// and results. The order matters: a program can imitate the server's text, but it
// cannot write in front of it.
func (r Run) read(parts []part) []mcp.Content {
	body := weave(r.output, parts)
	var w weaver
	w.text(r.facts(len(body) > 0))
	w.join(body)
	return w.contents
}

// facts returns a line in brackets with the run's outcome, followed by notices
// and next steps.
func (r Run) facts(shown bool) string {
	var b strings.Builder
	facts := []string{string(r.Status)}
	if r.Verdict != nil {
		facts[0] = string(r.Verdict.Code)
	}
	if r.ExitCode != nil {
		facts = append(facts, fmt.Sprintf("exit code %d", *r.ExitCode))
	}
	facts = append(facts, fmt.Sprintf("%d ms", r.Duration), r.RunID+" in "+r.SandboxID)
	fmt.Fprintf(&b, "[%s]\n", strings.Join(facts, ", "))

	if r.Service != nil {
		b.WriteString(ServiceText(sandbox.Run{ID: r.RunID, Service: r.Service}) + "\n")
	}
	if r.Context != nil && r.Context.Notice != "" {
		fmt.Fprintf(&b, "[before this run: %s]\n", r.Context.Notice)
	}
	if r.Verdict != nil && r.Verdict.Code != sandbox.OK {
		if r.Verdict.Cause != "" {
			fmt.Fprintf(&b, "cause: %s\n", r.Verdict.Cause)
		}
		if r.Verdict.NextStep != "" {
			fmt.Fprintf(&b, "next step: %s\n", r.Verdict.NextStep)
		}
	}
	if r.Rollback != nil {
		b.WriteString(rollbackText(*r.Rollback) + "\n")
	}
	if r.Network != nil {
		b.WriteString(networkText(*r.Network))
	}
	b.WriteString(changesText(r.changes))
	for _, line := range r.unshown {
		b.WriteString(line + "\n")
	}
	if r.Input != nil {
		fmt.Fprintf(&b, "It waits for a line of input (%q): %s.\n", r.Input.Prompt, r.answer)
	}
	if r.left > 0 {
		b.WriteString(r.leftText() + "\n")
	}
	if r.Page != nil {
		b.WriteString(r.Page.text())
	} else if o := r.Omitted; o.StdoutBytes+o.StderrBytes > 0 {
		fmt.Fprintf(&b, "Not shown: %d bytes of stdout, %d of stderr.\n", o.StdoutBytes, o.StderrBytes)
	}
	for _, n := range r.said {
		b.WriteString(n + "\n")
	}
	if r.NextStep != "" {
		b.WriteString(r.NextStep + "\n")
	}
	if !shown && r.Page == nil {
		b.WriteString("(no output)\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// rollbackText says whether a failed run was undone.
func rollbackText(r sandbox.Rollback) string {
	switch {
	case !r.Done:
		return "The run was not undone, so its effects may remain: " + r.Cause + "."
	case r.Workspace:
		return "The sandbox has the state from before this run again. The files of the workspace at " + sandbox.WorkDir + " are as the run left them."
	}
	return "The sandbox has the state from before this run again: variables, programs and files."
}

// ServiceText returns a line about the service that a run is.
func ServiceText(r sandbox.Run) string {
	s := r.Service
	text := fmt.Sprintf("service %q: %s, %s", s.Name, s.State, r.ID)
	if s.Restart != sandbox.RestartNever || s.Restarts > 0 {
		text += fmt.Sprintf(", restarts: %s, so far %d", s.Restart, s.Restarts)
	}
	if s.Wake == sandbox.WakeRequest {
		text += ", paused while unused"
	}
	if s.LastExit != nil {
		text += fmt.Sprintf(", last exit code %d", *s.LastExit)
	}
	for _, port := range s.Ports {
		text += fmt.Sprintf(", port %d", port)
	}
	return text
}

// Bounds on the links and pictures of changed files in an answer.
const (
	maxFileLinks    = 20
	maxFilePictures = 4
)

// AddChanges adds the files that a run changed: their names, URLs
// and links. It also adds the pictures that the run made, if there are previews of
// them. link makes the URL of a file; nil makes none.
func (r *Run) AddChanges(run sandbox.Run, previews map[string]sandbox.Preview, link func(name string) string) {
	changes := run.Changes
	if changes == nil || len(changes.Files) == 0 {
		return
	}
	r.changes = changes
	r.Changed = changed{changes.Created, changes.Modified, changes.Removed}
	pictures, pixels := maxFilePictures, maxPictureSize
	for _, f := range changes.Files {
		out := ChangedFile{FileChange: f}
		if f.Change == sandbox.FileRemoved || strings.ContainsRune(f.Path, '\uFFFD') {
			r.Files = append(r.Files, out)
			continue
		}
		kind := mime.TypeByExtension(path.Ext(f.Path))
		file := f.Path
		if !path.IsAbs(file) {
			file = sandbox.WorkDir + "/" + file
		}
		uri := FileURI(run.SandboxID, file)
		if link != nil && !path.IsAbs(f.Path) {
			out.URL = link(f.Path)
			uri = out.URL
		}
		r.Files = append(r.Files, out)
		switch p, ok := previews[f.Path]; {
		case !ok:
		case p.Why != "":
			r.unshown = append(r.unshown, fmt.Sprintf("%s is not shown: %s", ShownName(f.Path), p.Why))
		case pictures > 0 && p.Data.Size() <= int64(pixels):
			data, err := p.Data.Decode()
			if err != nil {
				r.unshown = append(r.unshown, fmt.Sprintf("%s is not shown: %s", ShownName(f.Path), noPicture(p.MIME)))
				break
			}
			pictures--
			pixels -= len(data)
			r.shown = append(r.shown, &mcp.ImageContent{MIMEType: p.MIME, Data: data})
		}
		if len(r.shown) < maxFileLinks {
			size := f.Size
			r.shown = append(r.shown, &mcp.ResourceLink{URI: uri, Name: ShownName(f.Path), MIMEType: kind, Size: &size})
		}
	}
}

// Rename gives the tools that the server's own sentences mention their names for the
// client. Sentences that are added later keep theirs.
func (r *Run) Rename(rename func(string) string) {
	if r.Verdict != nil {
		verdict := *r.Verdict
		verdict.NextStep = rename(verdict.NextStep)
		r.Verdict = &verdict
	}
	r.NextStep, r.answer = rename(r.NextStep), rename(r.answer)
	for i := range r.said {
		r.said[i] = rename(r.said[i])
	}
}

// Note adds a sentence of the server about the run.
func (r *Run) Note(text string) { r.said = append(r.said, text) }
