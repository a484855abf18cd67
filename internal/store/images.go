package store

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Principals of images that belong to no principal.
const (
	// OperatorImage is the principal of an image that the operator provided for
	// all principals.
	OperatorImage sandbox.Principal = ""
	// UnknownImage is the principal of an image that was in a container engine
	// before the store recorded principals of images.
	UnknownImage sandbox.Principal = "?"
)

// ImageRecords are the records of the images of one driver.
type ImageRecords struct {
	// Principals are the principals for which an image is recorded, by the
	// image's ID.
	Principals map[string][]sandbox.Principal
	// Pulls are in progress, or were when their process was killed.
	Pulls []ImagePull
	// Survey means that images without a record must be recorded as unknown, by
	// [Store.SurveyImages].
	Survey bool
}

// An ImagePull is a pull of an image by its name, for a principal.
type ImagePull struct {
	ID        int64
	Name      string
	Principal sandbox.Principal
	Begun     time.Time
}

// ImageRecords returns the records of a driver's images.
func (s *Store) ImageRecords(ctx context.Context, driver string) (ImageRecords, error) {
	r := ImageRecords{Principals: map[string][]sandbox.Principal{}}
	err := collect(ctx, s.read, `SELECT id, principal FROM images WHERE driver = ?`, []any{driver}, func(scan scanFunc) error {
		var id string
		var p sandbox.Principal
		err := scan(&id, &p)
		r.Principals[id] = append(r.Principals[id], p)
		return err
	})
	if err == nil {
		err = collect(ctx, s.read, `SELECT id, name, principal, begun_at FROM image_pulls WHERE driver = ?`, []any{driver}, func(scan scanFunc) error {
			var p ImagePull
			var begun int64
			err := scan(&p.ID, &p.Name, &p.Principal, &begun)
			p.Begun = fromMicros(begun)
			r.Pulls = append(r.Pulls, p)
			return err
		})
	}
	if err == nil {
		err = s.read.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM image_surveys WHERE driver = ?)`, driver).Scan(&r.Survey)
	}
	return r, sandbox.Wrap(err, "read records of images", "")
}

// RecordImages records that images belong to a principal.
func (s *Store) RecordImages(ctx context.Context, driver string, p sandbox.Principal, ids ...string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error { return s.recordImages(ctx, tx, driver, p, ids) })
	return sandbox.Wrap(err, "record images", "")
}

func (s *Store) recordImages(ctx context.Context, tx *sql.Tx, driver string, p sandbox.Principal, ids []string) error {
	for _, id := range ids {
		_, err := tx.ExecContext(ctx, `INSERT INTO images VALUES (?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET recorded_at = excluded.recorded_at`, driver, id, p, s.now().UnixMicro())
		if err != nil {
			return err
		}
	}
	return nil
}

// BeginImagePull records that an image is being pulled for a principal, and
// returns the identifier of the pull. Call it before the pull, because an image
// must never exist without a record of its principal.
func (s *Store) BeginImagePull(ctx context.Context, driver, name string, p sandbox.Principal) (id int64, err error) {
	r, err := s.write.ExecContext(ctx, `INSERT INTO image_pulls (driver, name, principal, begun_at) VALUES (?, ?, ?, ?)`,
		driver, name, p, s.now().UnixMicro())
	if err == nil {
		id, err = r.LastInsertId()
	}
	return id, sandbox.Wrap(noSpace(err), "record pull of image", name)
}

// EndImagePull removes the record of a pull. If image is not "", the image is
// recorded for the pull's principal. If operators is set, it is also recorded
// for the operator, who had it before. The error is of kind NotFound if there
// is no such pull.
func (s *Store) EndImagePull(ctx context.Context, id int64, image string, operators bool) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var driver string
		var p sandbox.Principal
		err := tx.QueryRowContext(ctx, `DELETE FROM image_pulls WHERE id = ? RETURNING driver, principal`, id).Scan(&driver, &p)
		if errors.Is(err, sql.ErrNoRows) {
			return sandbox.Errorf(sandbox.NotFound, "there is no such pull")
		}
		if err != nil || image == "" {
			return err
		}
		if operators {
			if err := s.recordImages(ctx, tx, driver, OperatorImage, []string{image}); err != nil {
				return err
			}
		}
		return s.recordImages(ctx, tx, driver, p, []string{image})
	})
	return sandbox.Wrap(err, "record image", "")
}

// SurveyImages records images of a driver that have no record as unknown. Only
// the first call has an effect.
func (s *Store) SurveyImages(ctx context.Context, driver string, ids []string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		r, err := tx.ExecContext(ctx, `DELETE FROM image_surveys WHERE driver = ?`, driver)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == 0 {
			return err // another process did the survey
		}
		for _, id := range ids {
			_, err := tx.ExecContext(ctx, `INSERT INTO images SELECT ?, ?, ?, ?
				WHERE NOT EXISTS (SELECT 1 FROM images WHERE driver = ? AND id = ?)`,
				driver, id, UnknownImage, s.now().UnixMicro(), driver, id)
			if err != nil {
				return err
			}
		}
		return nil
	})
	return sandbox.Wrap(err, "record images", "")
}

// ForgetImages removes the records of images that are not in had, the list of a
// driver's images at time at. Records made since then are kept.
func (s *Store) ForgetImages(ctx context.Context, driver string, had []string, at time.Time) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		var gone []string
		rows, err := tx.QueryContext(ctx, `SELECT DISTINCT id FROM images WHERE driver = ? AND recorded_at < ?`, driver, micros(at))
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id string
			if err := rows.Scan(&id); err != nil {
				return err
			}
			if !slices.Contains(had, id) {
				gone = append(gone, id)
			}
		}
		if err := rows.Err(); err != nil {
			return err
		}
		for _, id := range gone {
			// An image that came back meanwhile has a newer record.
			_, err := tx.ExecContext(ctx, `DELETE FROM images WHERE driver = ? AND id = ? AND recorded_at < ?`, driver, id, micros(at))
			if err != nil {
				return err
			}
		}
		return nil
	})
	return sandbox.Wrap(err, "forget images", "")
}
