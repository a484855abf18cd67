package control

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const box = "sbx_aaaaaaaaaaaaaaaaaaaaaaaaaa"

// scripted has one sandbox, whose port 8000 is a TCP address.
type scripted struct{ program string }

func (scripted) Owner(_ context.Context, id string) (sandbox.Principal, error) {
	if id != box {
		return "", sandbox.Errorf(sandbox.NotFound, "no sandbox %s", id)
	}
	return "alice", nil
}

func (s scripted) DialPort(ctx context.Context, p sandbox.Principal, _ string, port int) (net.Conn, error) {
	if p != "alice" || port != 8000 {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "nothing listens on port %d", port), "start it")
	}
	return new(net.Dialer).DialContext(ctx, "tcp", s.program)
}

func (scripted) SetNetwork(_ context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: id, Name: string(p), Network: n}, nil
}

func (scripted) Hibernate(_ context.Context, p sandbox.Principal, id string) error {
	if p != "alice" {
		return sandbox.Errorf(sandbox.NotFound, "no sandbox %s", id)
	}
	return nil
}

func (scripted) Get(_ context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: id, Name: string(p), State: sandbox.Hibernated, Hibernation: sandbox.Hibernation{Bytes: 5}}, nil
}

func TestControl(t *testing.T) {
	// It echoes what comes until the end of that half, and says goodbye.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				if _, err := io.Copy(conn, conn); err == nil {
					io.WriteString(conn, "goodbye")
				}
			}()
		}
	}()
	// Longer than a socket's name may be.
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 30))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "x.sock")
	s, err := Serve(path, scripted{l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("the socket: %v, %v", fi, err)
	}
	c := Client{path}
	conn, err := c.DialPort(t.Context(), box, 8000)
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Repeat("0123456789", 100_000)
	go func() {
		io.WriteString(conn, sent)
		conn.(interface{ CloseWrite() error }).CloseWrite()
	}()
	if got, err := io.ReadAll(conn); err != nil || string(got) != sent+"goodbye" {
		t.Errorf("%d bytes came back, %v", len(got), err)
	}
	conn.Close()

	_, err = c.DialPort(t.Context(), box, 9)
	if !errors.Is(err, sandbox.Unavailable) || sandbox.HintOf(err) != "start it" || !strings.Contains(err.Error(), "port 9") {
		t.Errorf("another port: %v, hint %q", err, sandbox.HintOf(err))
	}
	if _, err := c.DialPort(t.Context(), sandbox.NewID(), 8000); !errors.Is(err, sandbox.NotFound) {
		t.Errorf("another sandbox: %v", err)
	}
	if sb, err := c.SetNetwork(t.Context(), box, "a.example,b.example:443"); err != nil || sb.Network != "a.example,b.example:443" || sb.Name != "alice" {
		t.Errorf("set network: %+v, %v", sb, err)
	}
	if sb, err := c.Hibernate(t.Context(), box); err != nil || sb.State != sandbox.Hibernated || sb.Hibernation.Bytes != 5 || sb.Name != "alice" {
		t.Errorf("hibernate: %+v, %v", sb, err)
	}
	if _, err := c.Hibernate(t.Context(), "sbx_b"); err == nil {
		t.Error("a sandbox of another process hibernates")
	}
	if _, err := c.SetNetwork(t.Context(), box, "not a host"); !errors.Is(err, sandbox.Invalid) {
		t.Errorf("a bad policy: %v", err)
	}

	// Close ends what is open, and leaves nothing.
	if conn, err = c.DialPort(t.Context(), box, 8000); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("a connection is open when the server is closed: %d, %v", n, err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
	if _, err := c.DialPort(t.Context(), box, 8000); !errors.Is(err, sandbox.Unavailable) {
		t.Errorf("with nobody there: %v", err)
	}
}

func (s scripted) TakeSnapshot(_ context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	if name == "refused" {
		return sandbox.Snapshot{}, sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "a run goes on"), "wait for it")
	}
	return sandbox.Snapshot{ID: "snap_" + string(p), Sandbox: id, Name: name}, nil
}

func (s scripted) Rollback(_ context.Context, _ sandbox.Principal, id, ref string, endRuns bool) (sandbox.Snapshot, error) {
	return sandbox.Snapshot{ID: ref, Sandbox: id, Name: strconv.FormatBool(endRuns)}, nil
}

func (s scripted) Fork(_ context.Context, _ sandbox.Principal, id string, r sandbox.ForkRequest) ([]sandbox.Fork, error) {
	forks := make([]sandbox.Fork, r.Count)
	for i := range forks {
		forks[i].Sandbox.ID = id + strconv.Itoa(i)
	}
	forks[r.Count-1] = sandbox.Fork{Err: sandbox.Errorf(sandbox.Exhausted, "it is full")}
	return forks, nil
}

// TestSnapshot does each action over the socket.
func TestSnapshot(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := Serve(path, scripted{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c := Client{Path: path}
	for _, tt := range []struct {
		req  SnapshotRequest
		want SnapshotAnswer
	}{
		{SnapshotRequest{Action: SnapshotTake, Name: "n"}, SnapshotAnswer{Snapshot: sandbox.Snapshot{ID: "snap_alice", Sandbox: box, Name: "n"}}},
		{SnapshotRequest{Action: SnapshotRollback, Ref: "r", End: true}, SnapshotAnswer{Snapshot: sandbox.Snapshot{ID: "r", Sandbox: box, Name: "true"}}},
		{SnapshotRequest{Action: SnapshotFork, Fork: sandbox.ForkRequest{Count: 3}}, SnapshotAnswer{Copies: []string{box + "0", box + "1"}, Problems: []string{"it is full"}}},
	} {
		got, err := c.Snapshot(t.Context(), box, tt.req)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %+v, %v; want %+v", tt.req.Action, got, err, tt.want)
		}
	}
	if _, err := c.Snapshot(t.Context(), box, SnapshotRequest{Action: SnapshotTake, Name: "refused"}); sandbox.KindOf(err) != sandbox.Conflict || sandbox.HintOf(err) != "wait for it" {
		t.Errorf("a refusal is %v", err)
	}
	if _, err := c.Snapshot(t.Context(), box, SnapshotRequest{Action: "other"}); sandbox.KindOf(err) != sandbox.Invalid {
		t.Errorf("another action is %v", err)
	}
}

func (e scripted) TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.Snapshot, error) {
	s, err := e.TakeSnapshot(ctx, p, id, name)
	s.Disk = true
	return s, err
}
