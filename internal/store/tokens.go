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

const selectTokenSQL = `SELECT id, name, principal, hash, scopes, description, created_at, used_at, revoked_at,
	expires_at, rotated_at, rotations, previous_until FROM tokens`

func scanToken(scan scanFunc) (Token, error) {
	var (
		t      Token
		hash   []byte
		scopes string

		created, used, revoked, expires, rotated, until int64
	)
	if err := scan(&t.ID, &t.Name, &t.Principal, &hash, &scopes, &t.Description, &created, &used, &revoked,
		&expires, &rotated, &t.Rotations, &until); err != nil {
		return Token{}, err
	}
	copy(t.Hash[:], hash)
	t.Scopes = strings.Fields(scopes)
	t.Created, t.Used, t.Revoked = fromMicros(created), fromMicros(used), fromMicros(revoked)
	t.Expires, t.Rotated, t.PreviousUntil = fromMicros(expires), fromMicros(rotated), fromMicros(until)
	return t, nil
}

// PutToken adds a token. A zero Created means now. Identifier and hash must be
// new. The error is of kind Conflict if a token in force has the name.
func (s *Store) PutToken(ctx context.Context, t Token) error {
	if t.Created.IsZero() {
		t.Created = s.Now()
	}
	// One statement, so that of two requests at the same time one gets the name.
	n, err := s.exec(ctx, `INSERT INTO tokens (id, name, principal, hash, scopes, description, created_at, expires_at)
		SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8 WHERE NOT EXISTS (SELECT 1 FROM tokens
			WHERE name = ?2 AND name != '' AND revoked_at = 0 AND (expires_at = 0 OR expires_at > ?9))`,
		t.ID, t.Name, t.Principal, t.Hash[:], strings.Join(t.Scopes, " "), t.Description, micros(t.Created), micros(t.Expires), s.now().UnixMicro())
	if err == nil && n == 0 {
		err = sandbox.Errorf(sandbox.Conflict, "a valid token has the name %q", t.Name)
	}
	return sandbox.Wrap(err, "store token", t.ID)
}

// FindToken returns the token with that hash, also if it has expired. The hash may be
// the one of before its last rotation, as long as that is valid. The error is of kind
// NotFound if there is none or it was revoked.
func (s *Store) FindToken(ctx context.Context, hash [32]byte) (Token, error) {
	row := s.read.QueryRowContext(ctx, selectTokenSQL+` WHERE revoked_at = 0 AND (hash = ?1
		OR previous_hash = ?1 AND previous_hash != x'' AND previous_until > ?2)`, hash[:], s.now().UnixMicro())
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

const tokensNamedSQL = selectTokenSQL + ` WHERE id = ?1 OR name = ?1 ORDER BY created_at, id`

// TokensNamed returns the tokens with that identifier or name, including revoked ones,
// oldest first.
func (s *Store) TokensNamed(ctx context.Context, idOrName string) ([]Token, error) {
	var list []Token
	err := collect(ctx, s.read, tokensNamedSQL, []any{idOrName}, func(scan scanFunc) error {
		t, err := scanToken(scan)
		list = append(list, t)
		return err
	})
	return list, sandbox.Wrap(err, "find tokens", "")
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

// RotateToken replaces the hash of a token that is in force. The hash of before, old, is
// valid until until. The error is of kind Conflict if old is not the token's hash any
// more, or if the token was revoked.
func (s *Store) RotateToken(ctx context.Context, id string, old, hash [32]byte, until, expires time.Time) error {
	n, err := s.exec(ctx, `UPDATE tokens SET hash = ?1, previous_hash = ?2, previous_until = ?3, expires_at = ?4,
		rotated_at = ?5, rotations = rotations + 1 WHERE id = ?6 AND hash = ?2 AND revoked_at = 0`,
		hash[:], old[:], micros(until), micros(expires), s.now().UnixMicro(), id)
	if err == nil && n == 0 {
		err = sandbox.Errorf(sandbox.Conflict, "the token was rotated or revoked meanwhile")
	}
	return sandbox.Wrap(err, "rotate token", id)
}

// ForgetTokens removes the tokens that were revoked or had expired before t, and all but
// the latest most of these tokens.
func (s *Store) ForgetTokens(ctx context.Context, t time.Time, most int) error {
	const ended = `(SELECT id, iif(revoked_at != 0, revoked_at, expires_at) AS at FROM tokens
		WHERE revoked_at != 0 OR expires_at != 0 AND expires_at <= ?3)`
	_, err := s.exec(ctx, `DELETE FROM tokens WHERE id IN (SELECT id FROM `+ended+` WHERE at < ?1)
		OR id IN (SELECT id FROM `+ended+` ORDER BY at DESC, id LIMIT -1 OFFSET ?2)`, micros(t), most, s.now().UnixMicro())
	return sandbox.Wrap(err, "remove old tokens", "")
}

// TouchToken records that a token was used now.
func (s *Store) TouchToken(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `UPDATE tokens SET used_at = max(used_at, ?) WHERE id = ?`, s.now().UnixMicro(), id)
	return sandbox.Wrap(err, "store token", id)
}
