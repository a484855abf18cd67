package store

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestTemplatesMigration opens a database of before templates, which keeps its
// data and can then have templates.
func TestTemplatesMigration(t *testing.T) {
	dir := t.TempDir()
	makeBefore(t, dir, "0008_templates", `INSERT INTO images VALUES ('d', 'sha256:1', 'alice', 1)`)
	s := mustOpen(t, dir)
	r, err := s.ImageRecords(t.Context(), "d")
	if d := cmp.Diff(map[string][]sandbox.Principal{"sha256:1": {"alice"}}, r.Principals); err != nil || d != "" {
		t.Errorf("%v, -want +got\n%s", err, d)
	}
	if list, err := s.Templates(t.Context(), ""); err != nil || len(list) > 0 {
		t.Errorf("%v, %v", list, err)
	}
	mustAdd(t, s, "alice", "app", "b1")
}

// mustAdd records a build of a template.
func mustAdd(t *testing.T, s *Store, p sandbox.Principal, name, build string, tags ...string) Template {
	t.Helper()
	made, err := s.AddTemplateBuild(t.Context(), Template{ID: "id-" + string(p) + name, Principal: p, Name: name},
		TemplateBuild{ID: build, Tags: tags, Setup: json.RawMessage(`{}`)}, 2, 3)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func mustChange(t *testing.T, s *Store, id string, change func(*TemplateBuild)) {
	t.Helper()
	if err := s.ChangeBuild(t.Context(), id, func(b *TemplateBuild) error { change(b); return nil }); err != nil {
		t.Fatal(err)
	}
}

func TestTemplates(t *testing.T) {
	ctx := t.Context()
	now := time.UnixMicro(1_000_000).UTC()
	s, err := Open(ctx, Options{Dir: t.TempDir(), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()

	// Names are those of a principal, and IDs too.
	one := mustAdd(t, s, "alice", "app", "b1", "default")
	bobs := mustAdd(t, s, "bob", "app", "b2", "default")
	for _, name := range []string{"app", one.ID} {
		if got, err := s.Template(ctx, "alice", name); err != nil || got.ID != one.ID || got.Builds != 1 {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := s.Template(ctx, "alice", bobs.ID); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another's template: %v", err)
	}
	if p, err := s.TemplateOwner(ctx, bobs.ID); p != "bob" || err != nil {
		t.Errorf("%s, %v", p, err)
	}
	if _, err := s.TemplateBuild(ctx, one.ID, "b2"); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another template's build: %v", err)
	}

	// A tag names a build as soon as that is ready, and no earlier.
	if tags, err := s.TemplateTags(ctx, one.ID); err != nil || len(tags) > 0 {
		t.Errorf("%v, %v", tags, err)
	}
	mustChange(t, s, "b1", func(b *TemplateBuild) { b.Status, b.Image = BuildReady, "image-1" })
	mustAdd(t, s, "alice", "app", "b3", "default", "v2")
	mustChange(t, s, "b3", func(b *TemplateBuild) { b.Status, b.Reason, b.Step = BuildFailed, "why", "1" })
	want := []TemplateTag{{"default", "b1", now}}
	if tags, err := s.TemplateTags(ctx, one.ID); err != nil || !cmp.Equal(tags, want) {
		t.Errorf("after a failed build: %v, %v", tags, err)
	}
	mustAdd(t, s, "alice", "app", "b4", "default", "v2")
	mustChange(t, s, "b4", func(b *TemplateBuild) { b.Status, b.Image = BuildReady, "image-4" })
	want = []TemplateTag{{"default", "b4", now}, {"v2", "b4", now}}
	if tags, err := s.TemplateTags(ctx, one.ID); err != nil || !cmp.Equal(tags, want) {
		t.Errorf("after a second build: %v, %v", tags, err)
	}
	old, err := s.UntaggedBuilds(ctx, one.ID)
	if err != nil || len(old) != 1 || old[0].Image != "image-1" || !old[0].Finished.Equal(now) {
		t.Errorf("builds without a tag: %+v, %v", old, err)
	}

	if build, err := s.TagBuild(ctx, one.ID, "v2", []string{"stable"}, 3); build != "b4" || err != nil {
		t.Errorf("%s, %v", build, err)
	}
	if _, err := s.TagBuild(ctx, one.ID, "v2", []string{"more"}, 3); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a fourth of three tags: %v", err)
	}
	if _, err := s.TagBuild(ctx, one.ID, "v3", []string{"more"}, 9); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a missing tag: %v", err)
	}
	if err := s.RemoveTags(ctx, one.ID, []string{"stable", "none"}); err != nil {
		t.Error(err)
	}
	if tags, err := s.TemplateTags(ctx, one.ID); err != nil || !cmp.Equal(tags, want) {
		t.Errorf("after a removal: %v, %v", tags, err)
	}

	// The bounds on templates and on builds in progress are those of a principal.
	mustAdd(t, s, "alice", "two", "b5")
	mustAdd(t, s, "alice", "two", "b6")
	if _, err := s.AddTemplateBuild(ctx, Template{ID: "x", Principal: "alice", Name: "three"}, TemplateBuild{ID: "b7"}, 2, 9); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a third of two templates: %v", err)
	}
	mustAdd(t, s, "alice", "app", "b8")
	if _, err := s.AddTemplateBuild(ctx, Template{ID: "x", Principal: "alice", Name: "app"}, TemplateBuild{ID: "b9"}, 2, 3); !errors.Is(err, sandbox.Exhausted) {
		t.Errorf("a fourth of three builds: %v", err)
	}
	mustAdd(t, s, "bob", "two", "b10")

	if err := errors.Join(s.TemplateUsed(ctx, one.ID), s.RemoveBuild(ctx, "b8")); err != nil {
		t.Fatal(err)
	}
	if got, err := s.Template(ctx, "alice", "app"); err != nil || got.Uses != 1 || !got.Used.Equal(now) || got.Builds != 3 {
		t.Errorf("%+v, %v", got, err)
	}

	// With a template go its builds and tags, and no other's.
	if err := s.RemoveTemplate(ctx, one.ID); err != nil {
		t.Fatal(err)
	}
	builds, err := s.AllTemplateBuilds(ctx)
	if err != nil || len(builds) != 4 {
		t.Errorf("%d builds are left, %v", len(builds), err)
	}
	for _, b := range builds {
		if b.ID == "" || b.Template == "" || b.Status == "" || b.Created.IsZero() || b.Tags != nil || len(b.Setup) > 0 {
			t.Errorf("a build for the sweep: %+v", b)
		}
	}
	if list, err := s.Templates(ctx, "alice"); err != nil || len(list) != 1 || list[0].Name != "two" {
		t.Errorf("%v, %v", list, err)
	}
	if err := s.ChangeBuild(ctx, "b1", func(*TemplateBuild) error { return nil }); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("a build of a removed template: %v", err)
	}
}
