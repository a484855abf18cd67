package e2bapi

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fakeSnapshots are the snapshots of all principals, by the sandbox that they are of.
type fakeSnapshots struct {
	list  []sandbox.Snapshot
	fails error
	forks []sandbox.ForkRequest
}

func (e *fakeEngine) TakeSnapshot(_ context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	b, err := e.find(p, id)
	if err != nil || e.snaps.fails != nil {
		return sandbox.Snapshot{}, cmpErr(err, e.snaps.fails)
	}
	s := sandbox.Snapshot{ID: sandbox.NewSnapshotID(), Name: name, State: sandbox.SnapshotKept, Sandbox: id, Labels: b.Labels, Created: now.Add(time.Duration(len(e.snaps.list)) * time.Second)}
	e.snaps.list = append([]sandbox.Snapshot{s}, e.snaps.list...)
	return s, nil
}

func cmpErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (e *fakeEngine) Snapshots(_ context.Context, p sandbox.Principal, f sandbox.SnapshotFilter) (list []sandbox.Snapshot, err error) {
	for _, s := range e.snaps.list {
		if _, err := e.find(p, s.Sandbox); err == nil && (f.Sandbox == "" || f.Sandbox == s.Sandbox) && (f.Name == "" || f.Name == s.Name) {
			list = append(list, s)
		}
	}
	return list, nil
}

func (e *fakeEngine) Snapshot(ctx context.Context, p sandbox.Principal, ref string) (sandbox.Snapshot, error) {
	list, err := e.Snapshots(ctx, p, sandbox.SnapshotFilter{})
	for _, s := range list {
		if s.ID == ref || s.Name == ref {
			return s, err
		}
	}
	return sandbox.Snapshot{}, sandbox.Errorf(sandbox.NotFound, "snapshot: there is no snapshot %s", ref)
}

func (e *fakeEngine) RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error {
	s, err := e.Snapshot(ctx, p, ref)
	if err != nil {
		return err
	}
	for i := range e.snaps.list {
		if e.snaps.list[i].ID == s.ID {
			e.snaps.list = append(e.snaps.list[:i], e.snaps.list[i+1:]...)
			break
		}
	}
	return nil
}

func (e *fakeEngine) Fork(ctx context.Context, p sandbox.Principal, id string, r sandbox.ForkRequest) (forks []sandbox.Fork, err error) {
	e.snaps.forks = append(e.snaps.forks, r)
	if e.snaps.fails != nil {
		return nil, e.snaps.fails
	}
	for i := range r.Count {
		if i == 2 {
			forks = append(forks, sandbox.Fork{Err: sandbox.Errorf(sandbox.Exhausted, "there are 2 sandboxes")})
			continue
		}
		sb, err := e.Create(ctx, p, sandbox.CreateRequest{TTL: r.TTL})
		forks = append(forks, sandbox.Fork{Sandbox: sb, Err: err})
	}
	return forks, nil
}

func TestFork(t *testing.T) {
	e, s, srv := newTest(t)
	id := e.add("alice", func(sb *sandbox.Sandbox) {})
	fork := func(body, key string, want int) string {
		t.Helper()
		status, _, got := do(t, "POST", srv.URL+"/sandboxes/"+id+"/fork", body, "X-API-KEY", key)
		if status != want {
			t.Errorf("fork %s: status %d, want %d: %s", body, status, want, got)
		}
		return got
	}
	one := decodeJSON[[]forkResult](t, fork("", "alice", 201))
	if len(one) != 1 || one[0].Error != nil || one[0].Sandbox.SandboxID == sandbox.HostID(id) || one[0].Sandbox.EnvdAccessToken == s.opts.Access.Token(id) {
		t.Errorf("a fork is %+v; it needs an identifier and a token of its own", one)
	}
	three := decodeJSON[[]forkResult](t, fork(`{"timeout":300,"count":3}`, "alice", 201))
	if len(three) != 3 || three[2].Sandbox != nil || three[2].Error == nil || three[2].Error.Code != 429 || three[2].Error.Message == "" {
		t.Errorf("three forks of two are %+v", three)
	}
	want := []sandbox.ForkRequest{{Count: 1, TTL: 15 * time.Second, CopyWorkspace: true}, {Count: 3, TTL: 5 * time.Minute, CopyWorkspace: true}}
	fork(`{"memory":false}`, "alice", 201)
	fork(`{"memory":true}`, "alice", 201)
	want = append(want, sandbox.ForkRequest{Count: 1, TTL: 15 * time.Second, CopyWorkspace: true, Disk: true}, want[0])
	if diff := cmp.Diff(want, e.snaps.forks); diff != "" {
		t.Error(diff)
	}
	fork(`{"count":0}`, "alice", 400)
	fork(`{"unknown":0}`, "alice", 400)
	fork("", "mallory", 404)
	e.snaps.fails = sandbox.Errorf(sandbox.Conflict, "a run goes on")
	fork("", "alice", 503)
	e.boxes[id].State = sandbox.Hibernated
	if body := fork("", "alice", 409); !strings.Contains(body, "is paused and cannot be forked") {
		t.Errorf("a fork of a paused sandbox: %s", body)
	}
}

func TestSnapshots(t *testing.T) {
	e, _, srv := newTest(t)
	id := e.add("alice", func(sb *sandbox.Sandbox) {
		sb.Labels = map[string]string{labelUser: "root", labelTemplate: "old", "a": "b"}
	})
	ask := func(method, path, body string, want int) (string, string) {
		t.Helper()
		status, h, got := do(t, method, srv.URL+path, body, "X-API-KEY", "alice")
		if status != want {
			t.Errorf("%s %s: status %d, want %d: %s", method, path, status, want, got)
		}
		return got, h.Get("X-Next-Token")
	}
	var ids []string
	for i := range 3 {
		body := `{}`
		if i == 0 {
			body = `{"name":"good"}`
		}
		got, _ := ask("POST", "/sandboxes/"+sandbox.HostID(id)+"/snapshots", body, 201)
		s := decodeJSON[snapshotEntry](t, got)
		if len(s.Names) != 0 && (i != 0 || s.Names[0] != "good") {
			t.Errorf("a snapshot is %+v", s)
		}
		ids = append(ids, s.SnapshotID)
	}
	got, next := ask("GET", "/snapshots?limit=2&sandboxID="+sandbox.HostID(id), "", 200)
	if list := decodeJSON[[]snapshotEntry](t, got); len(list) != 2 || list[0].SnapshotID != ids[2] || next == "" {
		t.Errorf("the first page is %v, next %q", list, next)
	}
	got, next = ask("GET", "/snapshots?limit=2&nextToken="+next, "", 200)
	if list := decodeJSON[[]snapshotEntry](t, got); len(list) != 1 || list[0].SnapshotID != ids[0] || next != "" {
		t.Errorf("the second page is %v, next %q", list, next)
	}
	if got, _ := ask("GET", "/snapshots?name=none", "", 200); got != "[]\n" && got != "[]" {
		t.Errorf("no snapshots are %q", got)
	}
	ask("GET", "/snapshots?limit=0", "", 400)
	ask("GET", "/snapshots?nextToken=x", "", 400)

	// A sandbox of a snapshot, by its identifier and by its name.
	for _, template := range []string{ids[0], "good"} {
		ask("POST", "/sandboxes", fmt.Sprintf(`{"templateID":%q,"timeout":60}`, template), 201)
		r := e.created
		if r.Snapshot != ids[0] || r.Image != "" || r.Network != "" || r.Labels[labelUser] != "root" || r.Labels[labelTemplate] != ids[0] || r.Labels["a"] != "" {
			t.Errorf("the request for %s is %+v", template, r)
		}
	}
	ask("POST", "/sandboxes", fmt.Sprintf(`{"templateID":%q,"allow_internet_access":false}`, ids[0]), 201)
	if e.created.Network != sandbox.NetworkNone {
		t.Errorf("without the internet, the network is %s", e.created.Network)
	}
	ask("POST", "/sandboxes", fmt.Sprintf(`{"templateID":%q}`, sandbox.NewSnapshotID()), 404)

	for _, memory := range []bool{true, false} {
		got, _ := ask("POST", "/sandboxes/"+sandbox.HostID(id)+"/snapshots", fmt.Sprintf(`{"memory":%t}`, memory), 201)
		s := decodeJSON[snapshotEntry](t, got)
		if e.snaps.list[0].ID != s.SnapshotID || e.snaps.list[0].Disk == memory {
			t.Errorf("memory %t: %+v", memory, e.snaps.list[0])
		}
	}
	ask("DELETE", "/templates/"+ids[0], "", 204)
	ask("DELETE", "/templates/"+ids[0], "", 404)
	ask("DELETE", "/templates/python", "", 501) // this server builds no templates
	if status, _, _ := do(t, "DELETE", srv.URL+"/templates/"+ids[1], "", "X-API-KEY", "mallory"); status != 404 {
		t.Errorf("another principal deletes a snapshot: %d", status)
	}
	e.boxes[id].State = sandbox.Hibernated
	ask("POST", "/sandboxes/"+id+"/snapshots", "{}", 409)
}

func (e *fakeEngine) TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	s, err := e.TakeSnapshot(ctx, p, id, name)
	if err == nil {
		s.Disk, e.snaps.list[0].Disk = true, true
	}
	return s, err
}
