package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// keepTokens is how many access tokens, refresh tokens, and replaced refresh tokens
// of one grant are kept. A client that gets more loses the oldest.
const keepTokens = 10

// PutOAuthClient adds a client. If there are most clients already, it removes the
// client whose last use is the longest ago, one without a grant if possible. Grants
// of a removed client continue.
func (s *Store) PutOAuthClient(ctx context.Context, c sandbox.OAuthClient, most int) error {
	uris, err := json.Marshal(c.RedirectURIs)
	if err != nil {
		return err
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		var count int
		if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM oauth_clients`).Scan(&count); err != nil {
			return err
		}
		if count >= most {
			_, err := tx.ExecContext(ctx, `DELETE FROM oauth_clients WHERE id = (SELECT id FROM oauth_clients c
				ORDER BY EXISTS (SELECT 1 FROM oauth_grants g WHERE g.client_id = c.id), used_at, id LIMIT 1)`)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO oauth_clients (id, name, redirect_uris, created_at, used_at) VALUES (?, ?, ?, ?, ?)`,
			c.ID, c.Name, string(uris), micros(c.Created), micros(c.Created))
		return err
	})
	return sandbox.Wrap(err, "register client", "")
}

// clientUsed is the precision of a client's last use.
const clientUsed = time.Minute

// OAuthClient returns a registered client, and records the use. The error is of
// kind NotFound if there is none.
func (s *Store) OAuthClient(ctx context.Context, id string) (sandbox.OAuthClient, error) {
	var (
		c             sandbox.OAuthClient
		uris          string
		created, used int64
	)
	row := s.read.QueryRowContext(ctx, `SELECT id, name, redirect_uris, created_at, used_at FROM oauth_clients WHERE id = ?`, id)
	err := row.Scan(&c.ID, &c.Name, &uris, &created, &used)
	if errors.Is(err, sql.ErrNoRows) {
		return c, sandbox.Errorf(sandbox.NotFound, "there is no such client")
	}
	if err == nil {
		err = json.Unmarshal([]byte(uris), &c.RedirectURIs)
	}
	c.Created = fromMicros(created)
	if now := s.now(); err == nil && now.Sub(fromMicros(used)) >= clientUsed {
		_, err = s.exec(ctx, `UPDATE oauth_clients SET used_at = ? WHERE id = ?`, now.UnixMicro(), id)
	}
	return c, sandbox.Wrap(err, "find client", "")
}

// PutGrant adds a grant with its first tokens. It removes grants that have expired.
// If the grant's token has most grants already, it removes the one whose last use
// is the longest ago.
func (s *Store) PutGrant(ctx context.Context, g sandbox.Grant, most int, tokens ...sandbox.GrantToken) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `DELETE FROM oauth_grants WHERE expires_at < ?`, s.now().UnixMicro()); err != nil {
			return err
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM oauth_grants WHERE token_id = ?1 AND id NOT IN (
			SELECT id FROM oauth_grants WHERE token_id = ?1 ORDER BY used_at DESC, id LIMIT ?2)`, g.TokenID, most-1)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO oauth_grants (id, token_id, client_id, client_name, scopes, created_at, used_at, expires_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, g.ID, g.TokenID, g.ClientID, g.ClientName, strings.Join(g.Scopes, " "),
			micros(g.Created), micros(g.Created), micros(g.Expires))
		if err != nil {
			return err
		}
		return putGrantTokens(ctx, tx, g.ID, tokens)
	})
	return sandbox.Wrap(err, "store grant", "")
}

func putGrantTokens(ctx context.Context, tx *sql.Tx, grant string, tokens []sandbox.GrantToken) error {
	for _, t := range tokens {
		_, err := tx.ExecContext(ctx, `INSERT INTO oauth_tokens (hash, grant_id, refresh, expires_at) VALUES (?, ?, ?, ?)`,
			t.Hash[:], grant, t.Refresh, micros(t.Expires))
		if err != nil {
			return err
		}
	}
	return nil
}

// tokenInForceSQL selects tokens t that are in force at the time ?1.
const tokenInForceSQL = `t.revoked_at = 0 AND (t.expires_at = 0 OR t.expires_at > ?1)`

const selectGrantSQL = `SELECT g.id, g.token_id, t.principal, g.client_id, g.client_name, g.scopes, g.created_at, g.used_at, g.expires_at
	FROM oauth_grants g JOIN tokens t ON t.id = g.token_id`

func grantColumns(g *sandbox.Grant, scopes *string, times *[3]int64) []any {
	return []any{&g.ID, &g.TokenID, &g.Principal, &g.ClientID, &g.ClientName, scopes, &times[0], &times[1], &times[2]}
}

func scanGrant(scan scanFunc) (g sandbox.Grant, err error) {
	var (
		scopes string
		times  [3]int64
	)
	err = scan(grantColumns(&g, &scopes, &times)...)
	g.Scopes = strings.Fields(scopes)
	g.Created, g.Used, g.Expires = fromMicros(times[0]), fromMicros(times[1]), fromMicros(times[2])
	return g, err
}

// Grants returns the grants that have not expired and whose tokens are in force,
// oldest first.
func (s *Store) Grants(ctx context.Context) ([]sandbox.Grant, error) {
	var list []sandbox.Grant
	err := collect(ctx, s.read, selectGrantSQL+` WHERE `+tokenInForceSQL+` AND g.expires_at >= ?1 ORDER BY g.created_at, g.id`,
		[]any{s.now().UnixMicro()}, func(scan scanFunc) error {
			g, err := scanGrant(scan)
			list = append(list, g)
			return err
		})
	return list, sandbox.Wrap(err, "list grants", "")
}

// GrantToken returns the access token or refresh token with that hash, and its
// grant. The error is of kind NotFound if there is none, if its grant has ended,
// or if it has expired.
func (s *Store) GrantToken(ctx context.Context, hash [32]byte, refresh bool) (sandbox.Grant, sandbox.GrantToken, error) {
	t := sandbox.GrantToken{Hash: hash, Refresh: refresh}
	var (
		expires, replaced int64
		grant             string
		g                 sandbox.Grant
	)
	now := s.now().UnixMicro()
	err := s.read.QueryRowContext(ctx, `SELECT grant_id, expires_at, replaced_at FROM oauth_tokens WHERE hash = ? AND refresh = ? AND expires_at >= ?`,
		hash[:], refresh, now).Scan(&grant, &expires, &replaced)
	if err == nil {
		g, err = scanGrant(s.read.QueryRowContext(ctx, selectGrantSQL+` WHERE `+tokenInForceSQL+` AND g.expires_at >= ?1 AND g.id = ?2`, now, grant).Scan)
	}
	if errors.Is(err, sql.ErrNoRows) {
		return g, t, sandbox.Errorf(sandbox.NotFound, "no such token")
	}
	t.Expires, t.Replaced = fromMicros(expires), fromMicros(replaced)
	return g, t, sandbox.Wrap(err, "find token", "")
}

// RenewGrant replaces a refresh token by new tokens, and moves the end of the
// grant to expires. It returns false, and changes nothing, if the refresh token
// was replaced before since, or is gone.
func (s *Store) RenewGrant(ctx context.Context, old [32]byte, grant string, since, expires time.Time, tokens ...sandbox.GrantToken) (renewed bool, err error) {
	now := s.now().UnixMicro()
	err = s.tx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `UPDATE oauth_tokens SET replaced_at = iif(replaced_at = 0, ?, replaced_at)
			WHERE hash = ? AND grant_id = ? AND refresh = 1 AND (replaced_at = 0 OR replaced_at >= ?)`, now, old[:], grant, micros(since))
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err
		}
		renewed = true
		if err := putGrantTokens(ctx, tx, grant, tokens); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE oauth_grants SET used_at = ?, expires_at = ? WHERE id = ?`, now, micros(expires), grant); err != nil {
			return err
		}
		// The expiry of a token follows its creation, so it gives the order.
		_, err = tx.ExecContext(ctx, `DELETE FROM oauth_tokens WHERE grant_id = ?1 AND (expires_at < ?2 OR hash IN (
			SELECT hash FROM (SELECT hash, row_number() OVER (PARTITION BY refresh, replaced_at != 0 ORDER BY expires_at DESC, hash) AS place
				FROM oauth_tokens WHERE grant_id = ?1) WHERE place > ?3))`, grant, now, keepTokens)
		return err
	})
	return renewed && err == nil, sandbox.Wrap(err, "renew grant", grant)
}

// EndGrant removes a grant and its tokens. A missing grant is no error.
func (s *Store) EndGrant(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM oauth_grants WHERE id = ?`, id)
	return sandbox.Wrap(err, "end grant", id)
}
