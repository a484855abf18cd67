// Package coderunner is the profile of jclement's mcp-code-runner. Each program
// runs in its own sandbox, on the files of a conversation. The files have URLs.
//
// Only package app imports it. [New] makes a profile that lives as long as its
// server and has no state: a conversation is a workspace.
package coderunner

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Name is the profile's name.
const Name = "code-runner"

// Engine is the part of package engine that this profile uses.
type Engine interface {
	profile.Engine
	// Languages returns the languages of a new sandbox, and the sandbox's ID.
	Languages(ctx context.Context, p sandbox.Principal, id string, r sandbox.CreateRequest) ([]sandbox.Language, string, error)
	// WriteWorkspaceFile writes a file of a workspace and returns the file's size
	// in bytes. It creates the workspace if necessary.
	WriteWorkspaceFile(ctx context.Context, p sandbox.Principal, workspace, name string, r io.Reader) (int64, error)
	// MakeWorkspace creates a workspace if it does not exist, and returns the
	// same URL as WorkspaceURL.
	MakeWorkspace(ctx context.Context, p sandbox.Principal, name string) (string, error)
	// WorkspaceURL returns the base URL of a workspace's files, or "" if no
	// server serves them.
	WorkspaceURL(ctx context.Context, p sandbox.Principal, workspace string) (string, error)
}

// Options are the arguments of [New]. Engine and Languages must be set.
type Options struct {
	profile.Options
	Engine Engine
	// Languages are the languages that run_code accepts.
	Languages []Language
}

// A Language is a language that run_code accepts, and the image that runs it.
type Language struct {
	Language string `json:"language"`
	Image    string `json:"image"`
}

const (
	// timeout is the timeout of a program.
	timeout = 30 * time.Second
	// closeTimeout bounds the work after a program's end.
	closeTimeout = 20 * time.Second
)

// memory is the original's limit. The original also has a limit of half a CPU.
// That is too little here: imports of pandas and matplotlib would take most of
// the timeout.
const memory = 256 << 20

type server struct{ opts Options }

const (
	conversationProperty = `"conversationId":{"type":"string","description":"Names the conversation, whose files stay together"}`

	uploadInput = `{"type":"object","properties":{` + conversationProperty + `,` +
		`"filename":{"type":"string","description":"Name of the file, such as data.csv"},` +
		`"content":{"type":"string","description":"What it is to hold, in base64"}},` +
		`"required":["conversationId","filename","content"]}`

	listInput = `{"type":"object"}`
)

// runInput returns the schema of run_code with the names of the languages.
func (s *server) runInput() string {
	names := make([]string, len(s.opts.Languages))
	for i, l := range s.opts.Languages {
		names[i] = l.Language
	}
	enum, err := json.Marshal(names)
	if err != nil {
		return fmt.Sprint(err) // strings always encode
	}
	return `{"type":"object","properties":{` + conversationProperty + `,` +
		`"language":{"type":"string","enum":` + string(enum) + `},` +
		`"code":{"type":"string","description":"The program. What it writes below /data, where it starts, stays and has an address"},` +
		`"network":{"type":"boolean","description":"Let it reach the internet, as far as the operator lets it (default: false)"},` +
		`"environment":{"type":"object","additionalProperties":{"type":"string"},"description":"Variables for its environment, such as keys"}},` +
		`"required":["conversationId","language","code"]}`
}

// New returns the profile.
func New(o Options) profile.Profile {
	s := &server{opts: o}
	run := s.runInput()
	return profile.Profile{
		Name:          Name,
		ServerName:    "mcp-code-sandbox",
		ServerVersion: "1.0.0",
		Failure:       failure,
		Sessionless:   true,
		Tools: []profile.Tool{
			{
				Name:        "upload_file",
				Description: "Put a file where the conversation's programs find it: below /data. It replaces one that is there.",
				Input:       uploadInput, Scope: auth.ScopeFiles,
				Run: profile.Typed(uploadInput, s.upload),
			},
			{
				Name: "run_code",
				Description: "Run a program in a sealed sandbox of its own, for 30 seconds at most. " +
					"Files below /data stay for the conversation, and the result has their addresses. FILE_BASE_URL in the environment is where they are.",
				Input: run, Scope: auth.ScopeRun,
				Run: profile.Typed(run, s.run),
			},
			{
				Name:        "list_runners",
				Description: "List the languages that run_code runs, and the image of each.",
				Input:       listInput, Scope: auth.ScopeRun, ReadOnly: true,
				Run: profile.Typed(listInput, s.list),
			},
		},
	}
}

// A file is a file of a conversation, with its URL.
type file struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// address returns the URL of a file below base, or "" if base is "".
func address(base, name string) string {
	if base == "" {
		return ""
	}
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return base + "/" + strings.Join(parts, "/")
}

func (s *server) upload(ctx context.Context, c profile.Call, in struct {
	Conversation string `json:"conversationId"`
	Name         string `json:"filename"`
	Content      string `json:"content"`
}) (profile.Result, error) {
	if in.Conversation == "" {
		return profile.Result{}, profile.Missing("conversationId")
	}
	if in.Name == "" {
		return profile.Result{}, profile.Missing("filename")
	}
	data, err := base64.StdEncoding.DecodeString(in.Content)
	if err != nil {
		return profile.Result{}, sandbox.Errorf(sandbox.Invalid, "content: not base64: %w", err)
	}
	n, err := s.opts.Engine.WriteWorkspaceFile(ctx, c.Principal, in.Conversation, in.Name, strings.NewReader(string(data)))
	if err != nil {
		return profile.Result{}, err
	}
	base, err := s.opts.Engine.WorkspaceURL(ctx, c.Principal, in.Conversation)
	if err != nil {
		return profile.Result{}, err
	}
	return profile.CompactJSON(struct {
		Success bool   `json:"success"`
		Message string `json:"message"`
		File    file   `json:"file"`
	}{true, fmt.Sprintf("File '%s' uploaded successfully (%d bytes)", in.Name, n), file{in.Name, address(base, in.Name)}})
}

// list returns the languages that run here. Other images are made for their languages,
// but the image host has only what is installed on the machine.
func (s *server) list(ctx context.Context, c profile.Call, _ struct{}) (profile.Result, error) {
	languages := s.opts.Languages
	if slices.ContainsFunc(languages, func(l Language) bool { return l.Image == sandbox.ImageHost }) {
		found, id, err := s.opts.Engine.Languages(ctx, c.Principal, "", sandbox.CreateRequest{Image: sandbox.ImageHost})
		if id != "" {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
			defer cancel()
			if err := s.opts.Engine.Stop(ctx, c.Principal, id); err != nil {
				s.opts.Log.Error("stop the sandbox of a list", "sandbox", id, "error", err)
			}
		}
		if err != nil {
			return profile.Result{}, err
		}
		languages = slices.DeleteFunc(slices.Clone(languages), func(l Language) bool {
			return l.Image == sandbox.ImageHost && !slices.ContainsFunc(found, func(f sandbox.Language) bool { return f.Name == l.Language && f.Program != "" })
		})
	}
	return profile.CompactJSON(struct {
		Languages []Language `json:"languages"`
	}{languages})
}

// unsuccessful is the answer to an upload or a run that failed.
type unsuccessful struct {
	Success bool   `json:"success"`
	Message string `json:"message"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
	Output  string `json:"output"`
	Files   []file `json:"files"`
}

// failure writes the error's text into every field where a client may look for
// it.
func failure(err error) profile.Result {
	text := profile.Explain(err)
	r, encodeErr := profile.CompactJSON(unsuccessful{Message: text, Stderr: text, Output: text, Files: []file{}})
	if encodeErr != nil {
		return profile.Text(encodeErr.Error()) // strings always encode
	}
	r.IsError = true
	return r
}
