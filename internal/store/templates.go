package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Template is the record of a principal's template.
type Template struct {
	ID        string
	Principal sandbox.Principal
	Name      string
	Created   time.Time
	Updated   time.Time
	// Used is when a sandbox was last made of it, and Uses how often that was.
	Used time.Time
	Uses int64
	// Builds is the number of its builds.
	Builds int
}

// A BuildStatus is the state of a build of a template.
type BuildStatus string

// The states of a build. A requested build waits until its steps arrive. A queued
// build has its steps, and waits for its turn.
const (
	BuildRequested BuildStatus = "requested"
	BuildQueued    BuildStatus = "queued"
	BuildRunning   BuildStatus = "running"
	BuildReady     BuildStatus = "ready"
	BuildFailed    BuildStatus = "failed"
)

// Over reports whether a build has ended.
func (s BuildStatus) Over() bool { return s == BuildReady || s == BuildFailed }

// A TemplateBuild is the record of one build.
type TemplateBuild struct {
	ID, Template string
	Status       BuildStatus
	// Owner is the process that works on the build, and Sandbox its sandbox.
	Owner, Sandbox string
	// Image is the name of the image that it makes, or "" if that was removed.
	Image string
	Tags  []string        // to set when it is ready
	Setup json.RawMessage // how sandboxes of it start
	// Reason says why it failed, and Step in which step.
	Reason, Step string
	Created      time.Time
	Updated      time.Time
	Finished     time.Time // zero until it is over
}

// A TemplateTag is a name of a build.
type TemplateTag struct {
	Tag, Build string
	Created    time.Time
}

const (
	selectTemplateSQL = `SELECT id, principal, name, created_at, updated_at, used_at, uses,
		(SELECT count(*) FROM template_builds b WHERE b.template = t.id) FROM templates t`
	selectBuildSQL = `SELECT id, template, status, owner, sandbox, image, tags, setup, reason, reason_step,
		created_at, updated_at, finished_at FROM template_builds`
)

func scanTemplate(scan scanFunc) (Template, error) {
	var t Template
	var created, updated, used int64
	err := scan(&t.ID, &t.Principal, &t.Name, &created, &updated, &used, &t.Uses, &t.Builds)
	t.Created, t.Updated, t.Used = fromMicros(created), fromMicros(updated), fromMicros(used)
	return t, err
}

func scanBuild(scan scanFunc) (TemplateBuild, error) {
	var b TemplateBuild
	var created, updated, finished int64
	var tags, setup string
	err := scan(&b.ID, &b.Template, &b.Status, &b.Owner, &b.Sandbox, &b.Image, &tags, &setup, &b.Reason, &b.Step, &created, &updated, &finished)
	if err == nil {
		err = json.Unmarshal([]byte(tags), &b.Tags)
	}
	b.Setup = json.RawMessage(setup)
	b.Created, b.Updated, b.Finished = fromMicros(created), fromMicros(updated), fromMicros(finished)
	return b, err
}

// AddTemplateBuild records a requested build of the template t.Name of t.Principal.
// If there is no such template, it is made with the ID t.ID, unless the principal
// has most templates already. The build's ID and Setup must be set. The error is of
// kind Exhausted if the principal has that many templates, or mostBuilds builds
// that are not over.
func (s *Store) AddTemplateBuild(ctx context.Context, t Template, b TemplateBuild, most, mostBuilds int) (Template, error) {
	tags, err := json.Marshal(b.Tags)
	if err != nil {
		return Template{}, err
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		var count, busy int
		err := tx.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM templates WHERE principal = ? AND name != ?),
			(SELECT count(*) FROM template_builds WHERE status IN ('requested', 'queued', 'running')
				AND template IN (SELECT id FROM templates WHERE principal = ?))`, t.Principal, t.Name, t.Principal).Scan(&count, &busy)
		if err != nil {
			return err
		}
		if count >= most {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "you have %d templates, which is the maximum", count), "delete a template that you do not need")
		}
		if busy >= mostBuilds {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "%d of your builds are not over, which is the maximum", busy), "wait until one is over")
		}
		now := s.now().UnixMicro()
		_, err = tx.ExecContext(ctx, `INSERT INTO templates (id, principal, name, created_at, updated_at) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (principal, name) DO UPDATE SET updated_at = excluded.updated_at`, t.ID, t.Principal, t.Name, now, now)
		if err != nil {
			return err
		}
		t, err = scanTemplate(tx.QueryRowContext(ctx, selectTemplateSQL+` WHERE principal = ? AND name = ?`, t.Principal, t.Name).Scan)
		if err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO template_builds (id, template, status, tags, setup, created_at, updated_at)
			VALUES (?, ?, ?, ?, ?, ?, ?)`, b.ID, t.ID, BuildRequested, string(tags), string(b.Setup), now, now)
		return err
	})
	return t, sandbox.Wrap(err, "record build", "")
}

// Template returns a principal's template by its ID or its name, or an error of
// kind NotFound.
func (s *Store) Template(ctx context.Context, p sandbox.Principal, idOrName string) (Template, error) {
	t, err := scanTemplate(s.read.QueryRowContext(ctx, selectTemplateSQL+` WHERE principal = ? AND (id = ? OR name = ?) ORDER BY id = ? DESC LIMIT 1`,
		p, idOrName, idOrName, idOrName).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return t, sandbox.Errorf(sandbox.NotFound, "there is no such template")
	}
	return t, sandbox.Wrap(err, "read template", "")
}

// TemplateOwner returns the principal of a template, or an error of kind NotFound.
func (s *Store) TemplateOwner(ctx context.Context, id string) (p sandbox.Principal, err error) {
	err = s.read.QueryRowContext(ctx, `SELECT principal FROM templates WHERE id = ?`, id).Scan(&p)
	if errors.Is(err, sql.ErrNoRows) {
		return "", sandbox.Errorf(sandbox.NotFound, "there is no such template")
	}
	return p, sandbox.Wrap(err, "read template", "")
}

// Templates returns the templates of a principal, or of all if p is "", the newest
// first.
func (s *Store) Templates(ctx context.Context, p sandbox.Principal) ([]Template, error) {
	var all []Template
	err := collect(ctx, s.read, selectTemplateSQL+` WHERE principal = ? OR ? = '' ORDER BY created_at DESC, id`, []any{p, p}, func(scan scanFunc) error {
		t, err := scanTemplate(scan)
		all = append(all, t)
		return err
	})
	return all, sandbox.Wrap(err, "list templates", "")
}

// TemplateUsed records that a sandbox was made of a template.
func (s *Store) TemplateUsed(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `UPDATE templates SET used_at = ?, uses = uses + 1 WHERE id = ?`, s.now().UnixMicro(), id)
	return sandbox.Wrap(err, "record use of template", id)
}

// TemplateBuild returns a build of a template, or an error of kind NotFound.
func (s *Store) TemplateBuild(ctx context.Context, template, id string) (TemplateBuild, error) {
	b, err := scanBuild(s.read.QueryRowContext(ctx, selectBuildSQL+` WHERE template = ? AND id = ?`, template, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return b, sandbox.Errorf(sandbox.NotFound, "the template has no such build")
	}
	return b, sandbox.Wrap(err, "read build", "")
}

// TemplateBuilds returns the builds of a template, the newest first.
func (s *Store) TemplateBuilds(ctx context.Context, template string) ([]TemplateBuild, error) {
	return s.builds(ctx, selectBuildSQL+` WHERE template = ? ORDER BY created_at DESC, id`, template)
}

// AllTemplateBuilds returns the builds of all templates, the newest first. They have
// no Tags, Setup, Reason or Step, which can be long.
func (s *Store) AllTemplateBuilds(ctx context.Context) ([]TemplateBuild, error) {
	return s.builds(ctx, `SELECT id, template, status, owner, sandbox, image, 'null', '', '', '',
		created_at, updated_at, finished_at FROM template_builds ORDER BY created_at DESC, id`)
}

// TemplateImages returns the names of the images of a principal's builds, with those
// that a build in progress is about to make.
func (s *Store) TemplateImages(ctx context.Context, p sandbox.Principal) ([]string, error) {
	var all []string
	err := collect(ctx, s.read, `SELECT image FROM template_builds
		WHERE image != '' AND template IN (SELECT id FROM templates WHERE principal = ?)`, []any{p}, func(scan scanFunc) error {
		var name string
		err := scan(&name)
		all = append(all, name)
		return err
	})
	return all, sandbox.Wrap(err, "list images of templates", "")
}

// UntaggedBuilds returns the ready builds with an image, of a template or of all if
// template is "", that have no tag.
func (s *Store) UntaggedBuilds(ctx context.Context, template string) ([]TemplateBuild, error) {
	return s.builds(ctx, selectBuildSQL+` WHERE (template = ? OR ? = '') AND status = ? AND image != ''
		AND NOT EXISTS (SELECT 1 FROM template_tags g WHERE g.build = template_builds.id)`, template, template, BuildReady)
}

func (s *Store) builds(ctx context.Context, query string, args ...any) ([]TemplateBuild, error) {
	var all []TemplateBuild
	err := collect(ctx, s.read, query, args, func(scan scanFunc) error {
		b, err := scanBuild(scan)
		all = append(all, b)
		return err
	})
	return all, sandbox.Wrap(err, "list builds", "")
}

// ChangeBuild changes the record of a build. It calls change in a transaction, with
// the present record, and stores the fields of it that can change. If change
// returns an error, the record stays. If the build is ready then, its tags name it
// from now on. The error is of kind Exhausted if the template would have more than
// [MaxTags] tags.
func (s *Store) ChangeBuild(ctx context.Context, id string, change func(*TemplateBuild) error) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		b, err := scanBuild(tx.QueryRowContext(ctx, selectBuildSQL+` WHERE id = ?`, id).Scan)
		if errors.Is(err, sql.ErrNoRows) {
			return sandbox.Errorf(sandbox.NotFound, "there is no such build")
		}
		if err != nil {
			return err
		}
		over := b.Status.Over()
		if err := change(&b); err != nil {
			return err
		}
		now := s.now().UnixMicro()
		finished := micros(b.Finished)
		if b.Status.Over() && !over {
			finished = now
		}
		_, err = tx.ExecContext(ctx, `UPDATE template_builds SET status = ?, owner = ?, sandbox = ?, image = ?, setup = ?,
			reason = ?, reason_step = ?, updated_at = ?, finished_at = ? WHERE id = ?`,
			b.Status, b.Owner, b.Sandbox, b.Image, string(b.Setup), b.Reason, b.Step, now, finished, id)
		if err != nil || b.Status != BuildReady || over {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE templates SET updated_at = ? WHERE id = ?`, now, b.Template); err != nil {
			return err
		}
		return s.tagBuild(ctx, tx, b.Template, b.ID, b.Tags, MaxTags)
	})
	return sandbox.Wrap(err, "change build", id)
}

// MaxTags is the largest number of tags of a template.
const MaxTags = 50

// tagBuild gives a build tags, unless the template would then have more than most.
func (s *Store) tagBuild(ctx context.Context, tx *sql.Tx, template, build string, tags []string, most int) error {
	for _, tag := range tags {
		_, err := tx.ExecContext(ctx, `INSERT INTO template_tags VALUES (?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET build = excluded.build, created_at = excluded.created_at`, template, tag, build, s.now().UnixMicro())
		if err != nil {
			return err
		}
	}
	var count int
	if err := tx.QueryRowContext(ctx, `SELECT count(*) FROM template_tags WHERE template = ?`, template).Scan(&count); err != nil {
		return err
	}
	if count > most {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "the template would have %d tags; the maximum is %d", count, most), "remove tags that you do not need")
	}
	return nil
}

// TemplateTags returns the tags of a template in order.
func (s *Store) TemplateTags(ctx context.Context, template string) ([]TemplateTag, error) {
	var all []TemplateTag
	err := collect(ctx, s.read, `SELECT tag, build, created_at FROM template_tags WHERE template = ? ORDER BY tag`, []any{template}, func(scan scanFunc) error {
		var t TemplateTag
		var created int64
		err := scan(&t.Tag, &t.Build, &created)
		t.Created = fromMicros(created)
		all = append(all, t)
		return err
	})
	return all, sandbox.Wrap(err, "list tags", "")
}

// TagBuild gives the build with the tag from further tags. The error is of kind
// NotFound if there is no build with that tag, and of kind Exhausted if the
// template would have more than most tags.
func (s *Store) TagBuild(ctx context.Context, template, from string, tags []string, most int) (build string, err error) {
	err = s.tx(ctx, func(tx *sql.Tx) error {
		err := tx.QueryRowContext(ctx, `SELECT build FROM template_tags WHERE template = ? AND tag = ?`, template, from).Scan(&build)
		if errors.Is(err, sql.ErrNoRows) {
			return sandbox.Errorf(sandbox.NotFound, "the template has no ready build with the tag %s", from)
		}
		if err != nil {
			return err
		}
		return s.tagBuild(ctx, tx, template, build, tags, most)
	})
	return build, sandbox.Wrap(err, "tag build", "")
}

// RemoveTags removes tags of a template. Missing ones are ignored.
func (s *Store) RemoveTags(ctx context.Context, template string, tags []string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		for _, tag := range tags {
			if _, err := tx.ExecContext(ctx, `DELETE FROM template_tags WHERE template = ? AND tag = ?`, template, tag); err != nil {
				return err
			}
		}
		return nil
	})
	return sandbox.Wrap(err, "remove tags", "")
}

// RemoveTemplate removes a template with its builds and tags.
func (s *Store) RemoveTemplate(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM templates WHERE id = ?`, id)
	return sandbox.Wrap(err, "remove template", id)
}

// RemoveBuild removes the record of a build, and its tags.
func (s *Store) RemoveBuild(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `DELETE FROM template_builds WHERE id = ?`, id)
	return sandbox.Wrap(err, "remove build", id)
}
