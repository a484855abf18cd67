package app

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// firstToken is the name of the token that the first start makes. The principal
// has the same name, so a replacement token keeps its sandboxes.
const firstToken = "default"

// FirstToken makes a token and returns its text if there is none in force, or if
// replace is true. Otherwise it returns "": the text of an existing token cannot
// be recovered.
func (s *System) FirstToken(ctx context.Context, replace bool) (string, error) {
	if s.opts.Config.Server.Token != "" && !replace {
		return "", nil
	}
	tokens, err := s.store.ListTokens(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range tokens {
		if !t.Revoked.IsZero() {
			continue
		}
		if !replace {
			return "", nil
		}
		if t.Name == firstToken {
			if err := s.auth.Revoke(ctx, t.ID); err != nil {
				return "", err
			}
		}
	}
	// The file of an earlier token would mislead.
	if err := os.Remove(s.tokenPath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", sandbox.Errorf(sandbox.Unavailable, "remove the file of the token before: %w", err)
	}
	text, _, err := s.auth.Create(ctx, firstToken, auth.ScopeRun, auth.ScopeFiles)
	if errors.Is(err, sandbox.Conflict) && !replace {
		return "", nil // another server has just made it, and shows it
	}
	return text, err
}

// tokenPath is the file of a token that could not be shown to a person.
func (s *System) tokenPath() string { return filepath.Join(s.opts.Config.StateDir, "token") }

// KeepToken writes the text that [System.FirstToken] returned to a file in the
// state directory that only its owner can read. It returns the path. If the
// write fails, it revokes the token, so that the next start makes another.
func (s *System) KeepToken(ctx context.Context, text string) (string, error) {
	path := s.tokenPath()
	err := atomicfile.Replace(path, []byte(text+"\n"), 0o600)
	if err == nil {
		return path, nil
	}
	err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "write the token's file: %w", err), "make the state directory writable, or set GLOVEBOX_TOKEN_FILE")
	return "", errors.Join(err, s.auth.Revoke(ctx, firstToken))
}
