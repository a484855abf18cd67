package coderunner

import (
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/mcpserver/profile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An engine whose sandboxes have Python, and no program for TypeScript.
type engine struct {
	Engine
	stopped []string
}

func (*engine) Languages(context.Context, sandbox.Principal, string, sandbox.CreateRequest) ([]sandbox.Language, string, error) {
	return []sandbox.Language{{Name: "python", Program: "/usr/bin/python3"}, {Name: "typescript", Missing: "install Node"}}, "sbx_1", nil
}

func (e *engine) Stop(_ context.Context, _ sandbox.Principal, id string) error {
	e.stopped = append(e.stopped, id)
	return nil
}

// TestListRunners: the list has the languages of images, and of the host only those that
// are installed. The sandbox that was looked into is stopped.
func TestListRunners(t *testing.T) {
	e := &engine{}
	s := &server{Options{
		Options: profile.Options{Log: slog.New(slog.DiscardHandler)}, Engine: e,
		Languages: []Language{{"python", sandbox.ImageHost}, {"typescript", sandbox.ImageHost}, {"julia", "julia:1"}},
	}}
	r, err := s.list(t.Context(), profile.Call{Principal: "token:a"}, struct{}{})
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(r.Texts, "")
	if !strings.Contains(text, "python") || !strings.Contains(text, "julia") || strings.Contains(text, "typescript") {
		t.Errorf("the list is %s", text)
	}
	if len(e.stopped) != 1 || e.stopped[0] != "sbx_1" {
		t.Errorf("stopped are %v", e.stopped)
	}
}
