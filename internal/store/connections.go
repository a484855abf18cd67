package store

import (
	"context"
	"database/sql"
	"net/netip"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// MaxConnections bounds the connections on record per sandbox. The latest ones
// are kept.
const MaxConnections = 10_000

// AddConnections adds to a sandbox's record of connections, if the sandbox
// still has a record. Connections that are on record already stay unchanged. Of
// more than [MaxConnections], the oldest are removed.
func (s *Store) AddConnections(ctx context.Context, sandboxID string, list []sandbox.Connection) error {
	if len(list) == 0 {
		return nil
	}
	err := s.tx(ctx, func(tx *sql.Tx) error {
		for _, c := range list {
			address := ""
			if c.Address.IsValid() {
				address = c.Address.String()
			}
			_, err := tx.ExecContext(ctx, `INSERT OR IGNORE INTO connections (sandbox_id, number, protocol, host, address, port,
				blocked, sent, received, started_at, ended_at) SELECT ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
				WHERE EXISTS (SELECT 1 FROM sandboxes WHERE id = ?)`,
				sandboxID, c.Number, c.Protocol, c.Host, address, c.Port, c.Blocked, c.Sent, c.Received,
				micros(c.Started), micros(c.Ended), sandboxID)
			if err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, `DELETE FROM connections WHERE sandbox_id = ?
			AND number <= (SELECT max(number) FROM connections WHERE sandbox_id = ?) - ?`, sandboxID, sandboxID, MaxConnections)
		return err
	})
	return sandbox.Wrap(err, "store connections", sandboxID)
}

// ForgetConnections removes the oldest connections of each principal whose
// sandboxes together have more than most on record.
func (s *Store) ForgetConnections(ctx context.Context, most int) error {
	_, err := s.exec(ctx, `DELETE FROM connections WHERE (sandbox_id, number) IN (
		SELECT sandbox_id, number FROM (
			SELECT c.sandbox_id, c.number, row_number() OVER (PARTITION BY s.principal ORDER BY c.ended_at DESC, c.number DESC) AS nth
			FROM connections c JOIN sandboxes s ON s.id = c.sandbox_id
			WHERE s.principal IN (SELECT s.principal FROM connections c JOIN sandboxes s ON s.id = c.sandbox_id
				GROUP BY s.principal HAVING count(*) > ?))
		WHERE nth > ?)`, most, most)
	return sandbox.Wrap(err, "remove connections", "")
}

// Connections returns the latest limit connections of a sandbox, oldest first.
func (s *Store) Connections(ctx context.Context, sandboxID string, limit int) ([]sandbox.Connection, error) {
	var list []sandbox.Connection
	const query = `SELECT * FROM (SELECT number, protocol, host, address, port, blocked, sent, received, started_at, ended_at
		FROM connections WHERE sandbox_id = ? ORDER BY number DESC LIMIT ?) ORDER BY number`
	err := collect(ctx, s.read, query, []any{sandboxID, limit}, func(scan scanFunc) error {
		var c sandbox.Connection
		var address string
		var started, ended int64
		err := scan(&c.Number, &c.Protocol, &c.Host, &address, &c.Port, &c.Blocked, &c.Sent, &c.Received, &started, &ended)
		if err != nil {
			return err
		}
		if address != "" {
			if c.Address, err = netip.ParseAddr(address); err != nil {
				return err
			}
		}
		c.Started, c.Ended = fromMicros(started), fromMicros(ended)
		list = append(list, c)
		return nil
	})
	return list, sandbox.Wrap(err, "read connections", sandboxID)
}

// LastConnection returns the number of a sandbox's latest connection, or 0 if
// there is none.
func (s *Store) LastConnection(ctx context.Context, sandboxID string) (int64, error) {
	var n int64
	err := s.read.QueryRowContext(ctx, `SELECT coalesce(max(number), 0) FROM connections WHERE sandbox_id = ?`, sandboxID).Scan(&n)
	return n, sandbox.Wrap(err, "read connections", sandboxID)
}

// SetNetwork records the new network policy of a sandbox.
func (s *Store) SetNetwork(ctx context.Context, id string, n sandbox.Network) error {
	_, err := s.exec(ctx, `UPDATE sandboxes SET network = ? WHERE id = ?`, n, id)
	return sandbox.Wrap(err, "store sandbox", id)
}
