package coderunner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// executed is the outcome of a program. The original documents output and files,
// and returns stdout and stderr. ExitCode and Verdict are additions.
type executed struct {
	Success  bool                `json:"success"`
	Stdout   string              `json:"stdout"`
	Stderr   string              `json:"stderr"`
	Output   string              `json:"output"`
	Files    []file              `json:"files"`
	ExitCode *int                `json:"exit_code"`
	Verdict  sandbox.VerdictCode `json:"verdict"`
}

func (s *server) run(ctx context.Context, c profile.Call, in struct {
	Conversation string            `json:"conversationId"`
	Language     string            `json:"language"`
	Code         string            `json:"code"`
	Network      bool              `json:"network"`
	Environment  map[string]string `json:"environment"`
}) (_ profile.Result, err error) {
	for _, given := range []struct{ name, value string }{
		{"conversationId", in.Conversation}, {"language", in.Language}, {"code", in.Code},
	} {
		if given.value == "" {
			return profile.Result{}, profile.Missing(given.name)
		}
	}
	if !slices.ContainsFunc(s.opts.Languages, func(l Language) bool { return l.Language == in.Language }) {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "Unsupported language: %s", in.Language)
	}
	base, err := s.opts.Engine.MakeWorkspace(ctx, c.Principal, in.Conversation)
	if err != nil {
		return profile.Result{}, err
	}
	env := map[string]string{}
	if base != "" {
		env["FILE_BASE_URL"] = base // programs for mcp-code-runner make links with it
	}
	maps.Copy(env, in.Environment)
	r := sandbox.RunRequest{
		// The engine selects the image for the language.
		New:  sandbox.CreateRequest{Workspace: in.Conversation, Limits: sandbox.Limits{MemoryBytes: memory}},
		Code: in.Code, Language: in.Language, Env: env, Timeout: timeout,
	}
	if in.Network {
		r.New.Network = sandbox.NetworkInternet
	}
	run, err := c.Run(ctx, r)
	defer func() {
		// Stop the sandbox in any case: it was made only for this program.
		if run.SandboxID == "" {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		err = errors.Join(err, s.opts.Engine.Stop(ctx, c.Principal, run.SandboxID))
	}()
	if err != nil {
		return profile.Result{}, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	out, err := s.opts.Engine.Output(ctx, c.Principal, run.ID, sandbox.DefaultOutputBytes)
	if err != nil {
		return profile.Result{}, err
	}
	files, err := s.files(ctx, c, in.Conversation, run.SandboxID)
	if err != nil {
		return profile.Result{}, err
	}
	return result(run, out, files)
}

// files returns the files of a conversation. It omits files in subdirectories, as
// the original does.
func (s *server) files(ctx context.Context, c profile.Call, conversation, id string) ([]file, error) {
	files := []file{}
	base, err := s.opts.Engine.WorkspaceURL(ctx, c.Principal, conversation)
	if err != nil {
		return nil, err
	}
	entries, _, err := s.opts.Engine.ListFiles(ctx, c.Principal, id, sandbox.WorkDir, 1)
	if k := sandbox.KindOf(err); k == sandbox.Unavailable || k == sandbox.NotFound || k == sandbox.Conflict {
		return files, nil // the program ended its sandbox; the workspace still has the files
	}
	if err != nil {
		return nil, err
	}
	for _, f := range entries {
		if f.Type == sandbox.TypeFile {
			name := path.Base(f.Path)
			files = append(files, file{name, address(base, name)})
		}
	}
	return files, nil
}

func result(run sandbox.Run, out sandbox.Output, files []file) (profile.Result, error) {
	e := executed{
		Success: run.Verdict.Code == sandbox.OK,
		Stdout:  out.Stdout, Stderr: out.Stderr, Files: files,
		ExitCode: run.ExitCode, Verdict: run.Verdict.Code,
	}
	switch run.Verdict.Code {
	case sandbox.OK, sandbox.Failed:
	case sandbox.Timeout:
		e.Stderr = fmt.Sprintf("Execution timed out after %v\n%s", timeout, out.Stderr)
	default:
		// Without this text, the answer would look like a program without output.
		e.Stderr = strings.TrimSuffix(fmt.Sprintf("Execution ended: %s: %s\n%s", run.Verdict.Code, run.Verdict.Cause, out.Stderr), "\n")
	}
	e.Output = e.Stdout
	if e.Stdout != "" && e.Stderr != "" {
		e.Output += "\n"
	}
	e.Output += e.Stderr
	r, err := profile.CompactJSON(e)
	r.IsError = !e.Success
	return r, err
}
