package e2b

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/language"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	executeInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"code":{"title":"Code","type":"string"}},"required":["session_id","code"]}`

	installInput = `{"type":"object","properties":{` + sessionProperty + `,` +
		`"package_name":{"title":"Package Name","type":"string"}},"required":["session_id","package_name"]}`

	onceInput = `{"type":"object","properties":{"code":{"title":"Code","type":"string"}},"required":["code"]}`
)

func (s *server) codeTools() []profile.Tool {
	return []profile.Tool{
		{
			Name: "execute_code",
			Description: "Run Python in a sandbox. Variables stay for the next call. " +
				"Returns what it wrote, the value of the last expression, and its pictures.",
			Input: executeInput, Scope: auth.ScopeRun,
			Run: profile.Typed(executeInput, s.execute),
		},
		{
			Name:        "install_package",
			Description: "Install a Python package in a sandbox with pip, where the sandbox's network lets it.",
			Input:       installInput, Scope: auth.ScopeRun,
			Run: profile.Typed(installInput, s.install),
		},
		{
			Name:        "create_run_close",
			Description: "Run Python in a sandbox of its own, which is gone afterwards.",
			Input:       onceInput, Scope: auth.ScopeRun,
			Run: profile.Typed(onceInput, s.once),
		},
	}
}

// logs are lines of output, each with its newline.
type logs struct {
	Stdout []string `json:"stdout"`
	Stderr []string `json:"stderr"`
}

// An exception is the reason why a run failed.
type exception struct {
	Name      string `json:"name"`
	Value     string `json:"value"`
	Traceback string `json:"traceback"`
}

// executed is the outcome of a run. Results is an addition to the original.
type executed struct {
	Logs    logs              `json:"logs"`
	Error   *exception        `json:"error"`
	Results []json.RawMessage `json:"results,omitempty"`

	images []profile.Image
}

// evaluate runs code in the default context of a sandbox.
func (s *server) evaluate(ctx context.Context, c profile.Call, id, code string) (executed, error) {
	run, err := c.Run(ctx, sandbox.RunRequest{SandboxID: id, Code: code, Language: language.Python, Context: sandbox.DefaultContext, Timeout: s.opts.RunTimeout})
	if err != nil {
		return executed{}, err
	}
	return s.outcome(ctx, c, run)
}

// outcome returns the outcome of a run.
func (s *server) outcome(ctx context.Context, c profile.Call, run sandbox.Run) (executed, error) {
	// If the client is gone, still read the outcome to end the call in order.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	out, err := s.opts.Engine.Output(ctx, c.Principal, run.ID, sandbox.DefaultOutputBytes)
	if err != nil {
		return executed{}, err
	}
	shown, err := s.opts.Engine.Results(ctx, c.Principal, run.ID)
	if err != nil {
		return executed{}, err
	}
	e := executed{Logs: logs{lines(out.Stdout), lines(out.Stderr)}}
	switch {
	case shown.Error != nil:
		x := shown.Error
		e.Error = &exception{x.Name, x.Value, x.Traceback}
		// In the original's format, the log does not repeat the traceback.
		if rest, ok := strings.CutSuffix(strings.TrimRight(out.Stderr, "\n"), strings.TrimRight(x.Traceback, "\n")); ok {
			e.Logs.Stderr = lines(rest)
		}
	case run.Verdict.Code != sandbox.OK:
		e.Error = &exception{string(run.Verdict.Code), run.Verdict.Cause, run.Verdict.NextStep}
	}
	for _, r := range shown.Results {
		e.add(r)
	}
	return e, nil
}

// readTimeout bounds reading the outcome of a run, and stopping a sandbox after
// it.
const readTimeout = 10 * time.Second

// lines splits text after each newline.
func lines(text string) []string {
	parts := []string{}
	for part := range strings.SplitAfterSeq(text, "\n") {
		if part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}

// pictures are the image types that clients can show, in order of preference.
var pictures = []string{"image/png", "image/jpeg"}

// maxResult bounds the text of one result, in bytes. The engine bounds pictures.
const maxResult = 64 << 10

// add adds one result: pictures as images, and other types as text.
func (e *executed) add(r sandbox.Result) {
	texts := map[string]json.RawMessage{}
	for mime, value := range r.Data {
		switch {
		case strings.HasPrefix(mime, "image/") && mime != "image/svg+xml":
		case len(value) <= maxResult:
			texts[mime] = value
		}
	}
	for _, mime := range pictures {
		text, _ := r.Base64(mime)
		data, err := text.Decode()
		if err == nil && len(data) > 0 {
			e.images = append(e.images, profile.Image{MIMEType: mime, Data: data})
			break
		}
	}
	if len(texts) == 0 {
		return
	}
	if b, err := json.Marshal(texts); err == nil {
		e.Results = append(e.Results, b)
	}
}

// result encodes v, which includes e, and adds e's pictures.
func (e *executed) result(v any) (profile.Result, error) {
	r, err := profile.JSON(v)
	r.Images, r.IsError = e.images, e.Error != nil
	return r, err
}

func (s *server) execute(ctx context.Context, c profile.Call, in struct {
	session
	Code string `json:"code"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	e, err := s.evaluate(ctx, c, id, in.Code)
	if err != nil {
		return profile.Result{}, err
	}
	return e.result(e)
}

func (s *server) once(ctx context.Context, c profile.Call, in struct {
	Code string `json:"code"`
}) (profile.Result, error) {
	sb, err := s.opts.Engine.Create(ctx, c.Principal, sandbox.CreateRequest{})
	if err != nil {
		return profile.Result{}, err
	}
	e, err := s.evaluate(ctx, c, sb.ID, in.Code)
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readTimeout)
	defer cancel()
	closeErr := s.opts.Engine.Stop(stopCtx, c.Principal, sb.ID)
	if err != nil {
		return profile.Result{}, err
	}
	// Report the real state of the sandbox.
	status := "closed"
	if closeErr != nil {
		status = "not closed: " + profile.Explain(closeErr)
		s.opts.Log.Error("close the sandbox of one run", "sandbox", sb.ID, "error", closeErr)
	}
	return e.result(struct {
		executed
		Status  string `json:"sandbox_status"`
		Closed  bool   `json:"sandbox_closed"`
		Removed bool   `json:"sandbox_removed"`
	}{e, status, closeErr == nil, closeErr == nil})
}

func (s *server) install(ctx context.Context, c profile.Call, in struct {
	session
	Package string `json:"package_name"`
}) (profile.Result, error) {
	id, err := s.find(ctx, c, in.ID)
	if err != nil {
		return profile.Result{}, err
	}
	// Install checks the package's name and never passes it to a shell.
	run, err := c.Install(ctx, sandbox.PackagesRequest{SandboxID: id, Language: language.Python, Packages: []string{in.Package}})
	if err != nil {
		return profile.Result{}, err
	}
	e, err := s.outcome(ctx, c, run)
	if err != nil {
		return profile.Result{}, err
	}
	return e.result(struct {
		Package string     `json:"package"`
		Output  logs       `json:"output"`
		Error   *exception `json:"error"`
	}{in.Package, e.Logs, e.Error})
}
