package e2b

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/e2b/snapshots"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// keptSnapshots are the snapshots of a cloud, by their names.
type keptSnapshots struct {
	names []string
	used  bool // sandboxes of the snapshots exist
}

const team = "team-1/"

func (s *keptSnapshots) has(id string) bool {
	name, _ := strings.CutPrefix(strings.TrimSuffix(id, ":default"), team)
	return slices.Contains(s.names, name)
}

// serve answers a request about snapshots, one on a page. It returns false for others.
func (s *keptSnapshots) serve(c *cloud, w http.ResponseWriter, r *http.Request) bool {
	type answer struct {
		SnapshotID string   `json:"snapshotID"`
		Names      []string `json:"names"`
	}
	of := func(name string) answer { return answer{team + name + ":default", []string{team + name}} }
	var out any
	id, template := strings.CutPrefix(r.URL.Path, "/templates/")
	switch box, isTake := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/sandboxes/"), "/snapshots"); {
	case template && !s.has(id):
		http.Error(w, `{"code":404,"message":"template not found"}`, http.StatusNotFound)
		return true
	case template && s.used:
		http.Error(w, `{"code":400,"message":"cannot delete template because there are running sandboxes using it"}`, http.StatusBadRequest)
		return true
	case template:
		s.names = slices.DeleteFunc(s.names, func(name string) bool { return team+name+":default" == id || name == id })
		w.WriteHeader(http.StatusNoContent)
		return true
	case r.URL.Path == "/snapshots":
		page := slices.Index(s.names, r.URL.Query().Get("nextToken")) + 1
		list := []answer{}
		if page < len(s.names) {
			list = append(list, of(s.names[page]))
			w.Header().Set("X-Next-Token", s.names[page])
		}
		out = list
	case isTake && c.boxes[box] != nil:
		var in struct{ Name string }
		if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
			c.t.Error(err)
		}
		s.names = append(s.names, in.Name)
		w.WriteHeader(http.StatusCreated)
		out = of(in.Name)
	default:
		return false
	}
	if err := json.NewEncoder(w).Encode(out); err != nil {
		c.t.Error(err)
	}
	return true
}

// taking has the requests for a snapshot answered by answer.
func taking(answer func(http.ResponseWriter, *http.Request)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/snapshots") {
			return false
		}
		answer(w, r)
		return true
	}
}

func (c *cloud) kept() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.snaps.names)
}

// mustHave checks the snapshots that the driver lists, that the cloud has besides its own,
// and that have records.
func (c *cloud) mustHave(t *testing.T, d *Driver, listed, there, recorded int) {
	t.Helper()
	ids, err := d.Snapshots(t.Context())
	if err != nil || len(ids) != listed {
		t.Errorf("Snapshots: %q, %v; want %d", ids, err, listed)
	}
	if got := c.kept(); len(got) != there {
		t.Errorf("E2B has the snapshots %q, want %d", got, there)
	}
	if recs := recordsOf(t, d); len(recs) != recorded {
		t.Errorf("the records are %v, want %d", recs, recorded)
	}
}

func recordsDir(d *Driver) string { return filepath.Join(d.opts.StateDir, "e2b", "snapshots") }

// recordsOf returns the records of snapshots by their files.
func recordsOf(t *testing.T, d *Driver) map[string]snapshots.Record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(recordsDir(d), "*"))
	if err != nil {
		t.Fatal(err)
	}
	recs := map[string]snapshots.Record{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var rec snapshots.Record
		if err := json.Unmarshal(text, &rec); err != nil {
			t.Fatal(err)
		}
		recs[file] = rec
	}
	return recs
}

func writeRecord(t *testing.T, file string, rec snapshots.Record) {
	t.Helper()
	text, err := json.Marshal(rec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestSnapshotsOfState(t *testing.T) {
	c, d := newCloud(t)
	c.snaps.names = []string{"glovebox-other-" + sandbox.NewID(), "mine"} // of others
	spec := testSpec()
	box, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	c.set(nil)
	c.mustHave(t, d, 0, 2, 0)
	if n := c.asked(""); n != 0 {
		t.Errorf("%d requests without a snapshot", n)
	}
	b := box.(*Box)
	if err := b.contexts.inherit([]snapshots.Context{{Name: "python", ID: "of-e2b", Language: "python", Cwd: "/data"}}); err != nil {
		t.Fatal(err)
	}
	// A later process has the box's image from its label.
	again, err := d.Attach(t.Context(), b.Ref())
	if err != nil {
		t.Fatal(err)
	}
	id := sandbox.NewID()
	if taken, err := driver.TakeSnapshot(t.Context(), again, id); err != nil || taken != (driver.Snapshot{}) {
		t.Fatalf("%+v, %v", taken, err)
	}
	if _, err := driver.TakeSnapshot(t.Context(), b, id); sandbox.KindOf(err) != sandbox.Conflict {
		t.Errorf("the same identifier: %v, want a conflict", err)
	}
	c.mustHave(t, d, 1, 3, 1)
	other := testSpec()
	other.Image = "another"
	if _, err := d.CreateFrom(t.Context(), other, id); sandbox.KindOf(err) != sandbox.Unavailable || !strings.Contains(err.Error(), "image") || sandbox.HintOf(err) == "" {
		t.Errorf("another image: %v", err)
	}
	clone, err := d.CreateFrom(t.Context(), testSpec(), id)
	if err != nil {
		t.Fatal(err)
	}
	x := clone.(*Box)
	if names, err := x.contexts.kept(); err != nil || len(names) != 1 || names[0] != (snapshots.Context{Name: "python", ID: "of-e2b", Language: "python", Cwd: "/data"}) {
		t.Errorf("contexts of a clone: %+v, %v", names, err)
	}
	// E2B deletes no snapshot whose sandboxes exist.
	c.mu.Lock()
	c.snaps.used = true
	c.mu.Unlock()
	if err := d.RemoveSnapshot(t.Context(), id); err != nil {
		t.Errorf("RemoveSnapshot with a sandbox of it: %v", err)
	}
	c.mustHave(t, d, 0, 3, 1)
	if _, err := d.CreateFrom(t.Context(), testSpec(), id); sandbox.KindOf(err) != sandbox.NotFound {
		t.Errorf("CreateFrom a removed snapshot: %v", err)
	}
	if err := d.RemoveSnapshot(t.Context(), id); err != nil {
		t.Errorf("RemoveSnapshot again: %v", err)
	}
	c.mu.Lock()
	c.snaps.used = false
	c.mu.Unlock()
	c.mustHave(t, d, 0, 2, 0)
}

// TestSnapshotRefusals: a refusal has a kind and a hint that fit, and leaves nothing.
func TestSnapshotRefusals(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	for _, tt := range []struct {
		code    int
		message string
		kind    sandbox.Kind
		hint    string
	}{
		{403, "forbidden", sandbox.Unsupported, "copy the files out"},
		{404, "404 page not found", sandbox.Unsupported, "copy the files out"},
		{405, "method not allowed", sandbox.Unsupported, "copy the files out"},
		{501, "this driver keeps no snapshots", sandbox.Unsupported, "copy the files out"},
		{409, "cannot be snapshotted while in 'pausing' state", sandbox.Conflict, "again"},
		{429, "slow down", sandbox.Exhausted, "wait"},
		{500, "Error creating snapshot template", sandbox.Unavailable, "status.e2b.dev"},
		{503, "its node is busy", sandbox.Unavailable, "status.e2b.dev"},
	} {
		c.set(taking(func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(tt.code)
			io.WriteString(w, `{"message":"`+tt.message+`"}`)
		}))
		_, err := driver.TakeSnapshot(t.Context(), b, sandbox.NewID())
		if sandbox.KindOf(err) != tt.kind || !strings.Contains(sandbox.HintOf(err), tt.hint) || !strings.Contains(err.Error(), tt.message) || driver.IsGone(err) {
			t.Errorf("%d: %v (kind %s, hint %q)", tt.code, err, sandbox.KindOf(err), sandbox.HintOf(err))
		}
		c.set(nil)
		recorded := 0
		if tt.code >= 500 && tt.code != 501 {
			recorded = 1 // E2B may still make it
		}
		c.mustHave(t, d, 0, 0, recorded)
		if err := os.RemoveAll(recordsDir(d)); err != nil {
			t.Fatal(err)
		}
	}
	c.mu.Lock()
	clear(c.boxes)
	c.mu.Unlock()
	if _, err := driver.TakeSnapshot(t.Context(), b, sandbox.NewID()); !driver.IsGone(err) {
		t.Errorf("of a sandbox that was killed: %v; want ErrGone", err)
	}
	if _, err := driver.TakeSnapshot(t.Context(), b, "../x"); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("an invalid identifier: %v", err)
	}
	b.(*Box).image = ""
	if _, err := driver.TakeSnapshot(t.Context(), b, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("of a sandbox of an earlier version: %v", err)
	}
	if err := driver.Rollback(t.Context(), b, sandbox.NewID()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("Rollback: %v", err)
	}
	c.mustHave(t, d, 0, 0, 0)
}

// TestLostSnapshot: a snapshot whose answer was lost is not left at E2B.
func TestLostSnapshot(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	late, cancel := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		ctx    context.Context
		answer func(http.ResponseWriter)
	}{
		"broken off":    {t.Context(), func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"a 502":         {t.Context(), func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }},
		"nonsense":      {t.Context(), func(w http.ResponseWriter) { io.WriteString(w, "<html>") }},
		"no name":       {t.Context(), func(w http.ResponseWriter) { io.WriteString(w, `{"snapshotID":"?"}`) }},
		"much too late": {late, func(http.ResponseWriter) { cancel() }},
	} {
		var made string
		c.set(taking(func(w http.ResponseWriter, r *http.Request) {
			c.mu.Lock()
			c.snaps.serve(c, httptest.NewRecorder(), r) // it is made
			made = c.snaps.names[0]
			c.mu.Unlock()
			tt.answer(w)
		}))
		if _, err := driver.TakeSnapshot(tt.ctx, b, sandbox.NewID()); err == nil {
			t.Errorf("%s: no error", name)
		}
		if n := c.asked("POST"); n != 1 {
			t.Errorf("%s: asked %d times", name, n)
		}
		c.set(nil)
		c.mustHave(t, d, 0, 0, 1)
		// E2B makes it after that.
		c.mu.Lock()
		c.snaps.names = []string{made}
		c.mu.Unlock()
		if _, err := d.Snapshots(t.Context()); err != nil {
			t.Error(err)
		}
		c.mustHave(t, d, 0, 0, 1)
		for file, rec := range recordsOf(t, d) {
			rec.Changed = rec.Changed.Add(-snapshots.LateTime)
			writeRecord(t, file, rec)
		}
		if _, err := d.Snapshots(t.Context()); err != nil {
			t.Error(err)
		}
		c.mustHave(t, d, 0, 0, 0)
	}
}

// TestSnapshotCrash: what a killed process left is listed, and can be removed.
func TestSnapshotCrash(t *testing.T) {
	c, d := newCloud(t)
	before, after := sandbox.NewID(), sandbox.NewID()
	for _, id := range []string{before, after} {
		writeRecord(t, filepath.Join(recordsDir(d), id+".json"), snapshots.Record{Image: "base", Changed: time.Now().Add(-snapshots.LateTime)})
	}
	c.snaps.names = []string{"glovebox-" + d.state + "-" + after}
	c.mustHave(t, d, 2, 1, 2)
	for _, id := range []string{before, after} {
		if _, err := d.CreateFrom(t.Context(), testSpec(), id); sandbox.KindOf(err) != sandbox.NotFound || driver.IsGone(err) {
			t.Errorf("CreateFrom: %v, want not found", err)
		}
		if err := d.RemoveSnapshot(t.Context(), id); err != nil {
			t.Error(err)
		}
	}
	c.mustHave(t, d, 0, 0, 0)
}

// TestSnapshotDeletedOutside: a snapshot that was deleted at E2B is not listed, and no box
// is left of an attempt to use it.
func TestSnapshotDeletedOutside(t *testing.T) {
	c, d := newCloud(t)
	b := mustCreate(t, d)
	id := sandbox.NewID()
	if _, err := driver.TakeSnapshot(t.Context(), b, id); err != nil {
		t.Fatal(err)
	}
	c.mu.Lock()
	c.snaps.names = nil
	c.mu.Unlock()
	c.mustHave(t, d, 0, 0, 1)
	if _, err := d.CreateFrom(t.Context(), testSpec(), id); sandbox.KindOf(err) != sandbox.NotFound || driver.IsGone(err) || sandbox.HintOf(err) == "" {
		t.Errorf("CreateFrom: %v", err)
	}
	if left := c.made(); len(left) != 1 {
		t.Errorf("sandboxes %q", left)
	}
	// E2B cannot be reached: the record stays.
	c.set(func(w http.ResponseWriter, r *http.Request) bool { panic(http.ErrAbortHandler) })
	if err := d.RemoveSnapshot(t.Context(), id); sandbox.KindOf(err) != sandbox.Unavailable {
		t.Errorf("RemoveSnapshot without E2B: %v", err)
	}
	if _, err := d.Snapshots(t.Context()); sandbox.KindOf(err) != sandbox.Unavailable || errors.Is(err, driver.ErrGone) {
		t.Errorf("Snapshots without E2B: %v", err)
	}
	c.set(nil)
	if err := d.RemoveSnapshot(t.Context(), id); err != nil {
		t.Error(err)
	}
	c.mustHave(t, d, 0, 0, 0)
}
