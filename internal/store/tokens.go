package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Token is [sandbox.Token], the record of a token.
type Token = sandbox.Token

const selectTokenSQL = `SELECT id, name, principal, hash, scopes, created_at, used_at, revoked_at FROM tokens`

func scanToken(scan scanFunc) (Token, error) {
	var (
		t                      Token
		hash                   []byte
		scopes                 string
		created, used, revoked int64
	)
	if err := scan(&t.ID, &t.Name, &t.Principal, &hash, &scopes, &created, &used, &revoked); err != nil {
		return Token{}, err
	}
	copy(t.Hash[:], hash)
	t.Scopes = strings.Fields(scopes)
	t.Created, t.Used, t.Revoked = fromMicros(created), fromMicros(used), fromMicros(revoked)
	return t, nil
}

// PutToken adds a token. A zero Created means now. Identifier and hash must be
// new.
func (s *Store) PutToken(ctx context.Context, t Token) error {
	if t.Created.IsZero() {
		t.Created = s.Now()
	}
	_, err := s.exec(ctx, `INSERT INTO tokens (id, name, principal, hash, scopes, created_at) VALUES (?, ?, ?, ?, ?, ?)`,
		t.ID, t.Name, t.Principal, t.Hash[:], strings.Join(t.Scopes, " "), micros(t.Created))
	return sandbox.Wrap(err, "store token", t.ID)
}

// FindToken returns the token with that hash. The error is of kind NotFound if
// there is none or it was revoked.
func (s *Store) FindToken(ctx context.Context, hash [32]byte) (Token, error) {
	row := s.read.QueryRowContext(ctx, selectTokenSQL+` WHERE hash = ? AND revoked_at = 0`, hash[:])
	t, err := scanToken(row.Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Token{}, sandbox.Errorf(sandbox.NotFound, "no such token")
	}
	return t, sandbox.Wrap(err, "find token", "")
}

// ListTokens returns all tokens, including revoked ones, oldest first.
func (s *Store) ListTokens(ctx context.Context) ([]Token, error) {
	var list []Token
	err := collect(ctx, s.read, selectTokenSQL+` ORDER BY created_at, id`, nil, func(scan scanFunc) error {
		t, err := scanToken(scan)
		list = append(list, t)
		return err
	})
	return list, sandbox.Wrap(err, "list tokens", "")
}

// RevokeToken makes a token invalid for good. A second call keeps the time of
// the first. The error is of kind NotFound if there is no such token.
func (s *Store) RevokeToken(ctx context.Context, id string) error {
	n, err := s.exec(ctx, `UPDATE tokens SET revoked_at = iif(revoked_at = 0, ?, revoked_at) WHERE id = ?`,
		s.now().UnixMicro(), id)
	if err == nil && n == 0 {
		err = sandbox.Errorf(sandbox.NotFound, "no token %s", id)
	}
	return sandbox.Wrap(err, "revoke token", id)
}

// ForgetTokens removes the tokens that were revoked before t, and all but the
// latest most of the revoked tokens.
func (s *Store) ForgetTokens(ctx context.Context, t time.Time, most int) error {
	_, err := s.exec(ctx, `DELETE FROM tokens WHERE revoked_at != 0 AND (revoked_at < ? OR id NOT IN (
		SELECT id FROM tokens WHERE revoked_at != 0 ORDER BY revoked_at DESC, id LIMIT ?))`, micros(t), most)
	return sandbox.Wrap(err, "remove revoked tokens", "")
}

// TouchToken records that a token was used now.
func (s *Store) TouchToken(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `UPDATE tokens SET used_at = max(used_at, ?) WHERE id = ?`, s.now().UnixMicro(), id)
	return sandbox.Wrap(err, "store token", id)
}
