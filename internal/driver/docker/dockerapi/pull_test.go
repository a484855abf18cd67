package dockerapi

import (
	"errors"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestExplainPull(t *testing.T) {
	e := &Engine{Name: Docker}
	for text, want := range map[string]string{
		"pull access denied for x, repository does not exist or may require 'docker login'": "log in",
		"no matching manifest for linux/arm64/v8 in the manifest list entries":              "build it",
		"manifest for python:9.9 not found: manifest unknown":                               "tag",
		"dial tcp: lookup registry-1.docker.io: no such host":                               "images load",
		"toomanyrequests: You have reached your unauthenticated pull rate limit":            "wait",
		"failed to register layer: write /usr/lib/x: no space left on device":               "prune",
	} {
		err := e.explainPull("x", errors.New(text))
		if !strings.Contains(sandbox.HintOf(err), want) {
			t.Errorf("%q: hint %q, want %q in it", text, sandbox.HintOf(err), want)
		}
	}
}
