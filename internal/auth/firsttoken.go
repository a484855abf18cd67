package auth

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// FirstName is the name of the token that the first start makes. The principal
// has the same name, so a replacement token keeps its sandboxes.
const FirstName = "default"

// A FirstToken makes the token of a server's first start.
type FirstToken struct {
	Auth *Auth
	// Path is the file of a token that could not be shown to a person.
	Path string
}

// Make makes a token and returns its text if there is none in force, or if
// replace is true. Otherwise it returns "": the text of an existing token cannot
// be recovered.
func (f *FirstToken) Make(ctx context.Context, replace bool) (string, error) {
	if f.Auth.static && !replace {
		return "", nil
	}
	tokens, err := f.Auth.List(ctx)
	if err != nil {
		return "", err
	}
	for _, t := range tokens {
		if !t.InForce(f.Auth.now()) {
			continue
		}
		if !replace {
			return "", nil
		}
		if t.Name == FirstName {
			if _, err := f.Auth.Revoke(ctx, t.ID); err != nil {
				return "", err
			}
		}
	}
	// The file of an earlier token would mislead.
	if err := os.Remove(f.Path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", sandbox.Errorf(sandbox.Unavailable, "remove the file of the token before: %w", err)
	}
	text, _, err := f.Auth.Create(ctx, FirstName, ScopeRun, ScopeFiles)
	if errors.Is(err, sandbox.Conflict) && !replace {
		return "", nil // another server has just made it, and shows it
	}
	return text, err
}

// Keep writes the text that [FirstToken.Make] returned to the file, which only
// its owner can read. If the write fails, it revokes the token, so that the next
// start makes another.
func (f *FirstToken) Keep(ctx context.Context, text string) error {
	err := atomicfile.Replace(f.Path, []byte(text+"\n"), 0o600)
	if err == nil {
		return nil
	}
	err = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "write the token's file: %w", err), "make the state directory writable, or set GLOVEBOX_TOKEN_FILE")
	_, revokeErr := f.Auth.Revoke(ctx, FirstName)
	return errors.Join(err, revokeErr)
}
