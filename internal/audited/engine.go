// Package audited is the engine with a record of each security-relevant action.
//
// [New] wraps an engine; the result has all of its methods, and nothing to close. The
// methods here record the action, and otherwise behave as the engine's method of the
// same name. Package app makes one for all edges, so no edge can leave a record out.
package audited

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/engine"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// An Engine is an engine whose actions are recorded.
type Engine struct {
	*engine.Engine
	log *audit.Recorder
}

// New returns an engine that records its actions. A nil Recorder records nothing.
func New(e *engine.Engine, r *audit.Recorder) *Engine { return &Engine{e, r} }

type detail = map[string]string

// do records an action that has no result.
func (e *Engine) do(ctx context.Context, a audit.Action, p sandbox.Principal, id string, d detail, f func() error) error {
	return e.log.Do(ctx, audit.Record{Action: a, Principal: p, Sandbox: id, Detail: d}, func(*audit.Record) error { return f() })
}

// created describes the request for a sandbox.
func created(req sandbox.CreateRequest) detail {
	d := detail{"name": req.Name, "image": req.Image, "network": string(req.Network), "workspace": req.Workspace}
	if len(req.Env) > 0 {
		d["variables"] = strings.Join(slices.Sorted(maps.Keys(req.Env)), " ")
	}
	if req.Snapshot != "" {
		d["snapshot"] = req.Snapshot
	}
	var hosts []string
	for _, r := range req.HeaderRules {
		hosts = append(hosts, string(r.Hosts))
	}
	d["header_rules"] = strings.Join(hosts, " ")
	return d
}

// Create records [audit.SandboxCreate].
func (e *Engine) Create(ctx context.Context, p sandbox.Principal, req sandbox.CreateRequest) (box sandbox.Sandbox, err error) {
	rec := audit.Record{Action: audit.SandboxCreate, Principal: p, Detail: created(req)}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		box, err = e.Engine.Create(ctx, p, req)
		rec.Sandbox = box.ID
		if err == nil {
			rec.Detail["image"], rec.Detail["network"] = box.Image, string(box.Network)
		}
		return err
	})
	return box, err
}

// Stop records [audit.SandboxStop].
func (e *Engine) Stop(ctx context.Context, p sandbox.Principal, id string) error {
	return e.do(ctx, audit.SandboxStop, p, id, nil, func() error { return e.Engine.Stop(ctx, p, id) })
}

// Restart records [audit.SandboxRestart].
func (e *Engine) Restart(ctx context.Context, p sandbox.Principal, id string) error {
	return e.do(ctx, audit.SandboxRestart, p, id, nil, func() error { return e.Engine.Restart(ctx, p, id) })
}

// SetEnd records [audit.SandboxEnd].
func (e *Engine) SetEnd(ctx context.Context, p sandbox.Principal, id string, ttl time.Duration) (box sandbox.Sandbox, err error) {
	err = e.do(ctx, audit.SandboxEnd, p, id, detail{"ttl": ttl.String()}, func() error {
		box, err = e.Engine.SetEnd(ctx, p, id, ttl)
		return err
	})
	return box, err
}

// started describes the request for a run. It has the hash of the program, but not
// the program.
func started(req sandbox.RunRequest) detail {
	d := detail{}
	program := ""
	switch {
	case req.Code != "":
		d["language"] = req.Language
		program = req.Code
	case len(req.Commands) > 0:
		d["language"] = "shell"
		program = strings.Join(req.Commands, "\n")
	default:
		// No argument contains NUL, so different lists have different hashes.
		d["language"] = "argv"
		program = strings.Join(req.Argv, "\x00")
	}
	sum := sha256.Sum256([]byte(program))
	d["sha256"] = hex.EncodeToString(sum[:])
	d["context"] = req.Context
	if req.Root {
		d["user"] = "root"
	} else {
		d["user"] = req.As
	}
	if req.Service != nil {
		d["service"] = req.Service.Name
	}
	return d
}

// Start records [audit.RunStart]. The record of a run without a sandbox describes the
// new sandbox, too.
func (e *Engine) Start(ctx context.Context, p sandbox.Principal, req sandbox.RunRequest) (run sandbox.Run, err error) {
	rec := audit.Record{Action: audit.RunStart, Principal: p, Sandbox: req.SandboxID, Detail: started(req)}
	if req.SandboxID == "" {
		maps.Copy(rec.Detail, created(req.New))
	}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		run, err = e.Engine.Start(ctx, p, req)
		if err == nil {
			rec.Sandbox, rec.Run = run.SandboxID, run.ID
		}
		return err
	})
	return run, err
}

// StopRun records [audit.RunStop].
func (e *Engine) StopRun(ctx context.Context, p sandbox.Principal, id string) (run sandbox.Run, err error) {
	err = e.log.Do(ctx, audit.Record{Action: audit.RunStop, Principal: p, Run: id}, func(rec *audit.Record) error {
		run, err = e.Engine.StopRun(ctx, p, id)
		rec.Sandbox = run.SandboxID
		return err
	})
	return run, err
}

// SendInput records [audit.RunInput] with the hash of the input.
func (e *Engine) SendInput(ctx context.Context, p sandbox.Principal, id string, data []byte, eof bool) error {
	sum := sha256.Sum256(data)
	rec := audit.Record{Action: audit.RunInput, Principal: p, Run: id, Detail: detail{"bytes": strconv.Itoa(len(data)), "sha256": hex.EncodeToString(sum[:])}}
	return e.log.Do(ctx, rec, func(*audit.Record) error { return e.Engine.SendInput(ctx, p, id, data, eof) })
}

// Install records [audit.PackageInstall].
func (e *Engine) Install(ctx context.Context, p sandbox.Principal, req sandbox.PackagesRequest) (run sandbox.Run, err error) {
	rec := audit.Record{Action: audit.PackageInstall, Principal: p, Sandbox: req.SandboxID,
		Detail: detail{"language": req.Language, "packages": strings.Join(req.Packages, " ")}}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		run, err = e.Engine.Install(ctx, p, req)
		if err == nil {
			rec.Sandbox, rec.Run = run.SandboxID, run.ID
		}
		return err
	})
	return run, err
}

// DialPort records [audit.PortOpen].
func (e *Engine) DialPort(ctx context.Context, p sandbox.Principal, id string, port int) (c net.Conn, err error) {
	err = e.do(ctx, audit.PortOpen, p, id, detail{"port": strconv.Itoa(port)}, func() error {
		c, err = e.Engine.DialPort(ctx, p, id, port)
		return err
	})
	return c, err
}

// SetNetwork records [audit.NetworkSet].
func (e *Engine) SetNetwork(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	return e.SetNetworkRules(ctx, p, id, n, nil)
}

// SetNetworkRules records [audit.NetworkSet].
func (e *Engine) SetNetworkRules(ctx context.Context, p sandbox.Principal, id string, n sandbox.Network, rules []sandbox.Secret) (box sandbox.Sandbox, err error) {
	d := created(sandbox.CreateRequest{Network: n, HeaderRules: rules})
	err = e.do(ctx, audit.NetworkSet, p, id, d, func() error {
		box, err = e.Engine.SetNetworkRules(ctx, p, id, n, rules)
		return err
	})
	return box, err
}

// Forward records [audit.GuestRequest] for requests that change something or read a
// file. The hash is that of the request's body, as far as the guest read it.
func (e *Engine) Forward(p sandbox.Principal, id string, defaults sandbox.ProgramDefaults, req *http.Request) (resp *http.Response, err error) {
	if req.Method == http.MethodGet && req.URL.Path != guestapi.PathFiles {
		return e.Engine.Forward(p, id, defaults, req)
	}
	d := detail{"method": req.Method, "path": req.URL.Path, "file": req.URL.Query().Get("path")}
	rec := audit.Record{Action: audit.GuestRequest, Principal: p, Sandbox: id, Detail: d}
	err = e.log.Do(req.Context(), rec, func(rec *audit.Record) error {
		var body *hashed
		if req.Body != nil && req.Body != http.NoBody {
			body = &hashed{ReadCloser: req.Body, hash: sha256.New()}
			req.Body = body
		}
		resp, err = e.Engine.Forward(p, id, defaults, req)
		if err == nil && body != nil {
			rec.Detail["sha256"] = body.sum()
		}
		if err == nil && resp.StatusCode >= 400 {
			rec.Detail["status"] = strconv.Itoa(resp.StatusCode)
		}
		return err
	})
	return resp, err
}

// A listing of a directory names files, but reads none: it has no record.

// ReadFile records [audit.FileRead].
func (e *Engine) ReadFile(ctx context.Context, p sandbox.Principal, id, path string, offset, length int64) (r io.ReadCloser, size int64, err error) {
	err = e.do(ctx, audit.FileRead, p, id, detail{"path": path}, func() error {
		r, size, err = e.Engine.ReadFile(ctx, p, id, path, offset, length)
		return err
	})
	return r, size, err
}

// ReadFileAsRoot records [audit.FileRead].
func (e *Engine) ReadFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string) (r io.ReadCloser, size int64, err error) {
	err = e.do(ctx, audit.FileRead, p, id, detail{"path": path, "user": "root"}, func() error {
		r, size, err = e.Engine.ReadFileAsRoot(ctx, p, id, path)
		return err
	})
	return r, size, err
}

// SearchFiles records [audit.FileSearch], because its result has lines of files.
func (e *Engine) SearchFiles(ctx context.Context, p sandbox.Principal, id string, req sandbox.SearchRequest) (f sandbox.Found, err error) {
	err = e.do(ctx, audit.FileSearch, p, id, detail{"path": req.Path}, func() error {
		f, err = e.Engine.SearchFiles(ctx, p, id, req)
		return err
	})
	return f, err
}

// Diff records [audit.FileRead], because its result has lines of files.
func (e *Engine) Diff(ctx context.Context, p sandbox.Principal, id string, r sandbox.DiffRequest) (d sandbox.Diff, err error) {
	err = e.do(ctx, audit.FileRead, p, id, detail{"path": r.Path, "kind": "changes"}, func() error {
		d, err = e.Engine.Diff(ctx, p, id, r)
		return err
	})
	return d, err
}

// EditFile records [audit.FileWrite].
func (e *Engine) EditFile(ctx context.Context, p sandbox.Principal, id, path string, edits []sandbox.Edit) (done sandbox.Edited, err error) {
	err = e.do(ctx, audit.FileWrite, p, id, detail{"path": path, "edits": strconv.Itoa(len(edits))}, func() error {
		done, err = e.Engine.EditFile(ctx, p, id, path, edits)
		return err
	})
	return done, err
}

// MakeDir records [audit.FileWrite].
func (e *Engine) MakeDir(ctx context.Context, p sandbox.Principal, id, path string) error {
	return e.do(ctx, audit.FileWrite, p, id, detail{"path": path, "kind": "directory"}, func() error { return e.Engine.MakeDir(ctx, p, id, path) })
}

// WriteFile records [audit.FileWrite] with the hash of the contents.
func (e *Engine) WriteFile(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader, appendTo bool) error {
	return e.write(ctx, p, id, detail{"path": path}, r, func(r io.Reader) error { return e.Engine.WriteFile(ctx, p, id, path, r, appendTo) })
}

// WriteFileAsRoot records [audit.FileWrite] with the hash of the contents.
func (e *Engine) WriteFileAsRoot(ctx context.Context, p sandbox.Principal, id, path string, r io.Reader) error {
	return e.write(ctx, p, id, detail{"path": path, "user": "root"}, r, func(r io.Reader) error { return e.Engine.WriteFileAsRoot(ctx, p, id, path, r) })
}

// Unpack records [audit.FileWrite] with the hash of the archive.
func (e *Engine) Unpack(ctx context.Context, p sandbox.Principal, id string, r io.Reader, to sandbox.UnpackTo) error {
	return e.write(ctx, p, id, detail{"path": to.Path, "kind": "archive"}, r, func(r io.Reader) error { return e.Engine.Unpack(ctx, p, id, r, to) })
}

// WriteWorkspaceFile records [audit.FileWrite] with the hash of the contents.
func (e *Engine) WriteWorkspaceFile(ctx context.Context, p sandbox.Principal, workspace, name string, r io.Reader) (n int64, err error) {
	err = e.write(ctx, p, "", detail{"path": name, "workspace": workspace}, r, func(r io.Reader) error {
		n, err = e.Engine.WriteWorkspaceFile(ctx, p, workspace, name, r)
		return err
	})
	return n, err
}

// PutFile records [audit.FileWrite] with the hash of the contents.
func (e *Engine) PutFile(ctx context.Context, idOrHandle, name string, r io.Reader, size int64) (n int64, err error) {
	err = e.write(ctx, "", "", detail{"path": name, "workspace": idOrHandle}, r, func(r io.Reader) error {
		n, err = e.Engine.PutFile(ctx, idOrHandle, name, r, size)
		return err
	})
	return n, err
}

// OpenFile records [audit.FileRead].
func (e *Engine) OpenFile(ctx context.Context, idOrHandle, name string) (f *engine.OpenFile, err error) {
	err = e.do(ctx, audit.FileRead, "", "", detail{"path": name, "workspace": idOrHandle}, func() error {
		f, err = e.Engine.OpenFile(ctx, idOrHandle, name)
		return err
	})
	return f, err
}

// ExportWorkspace records [audit.WorkspaceExport].
func (e *Engine) ExportWorkspace(ctx context.Context, p sandbox.Principal, name string, w io.Writer) error {
	return e.do(ctx, audit.WorkspaceExport, p, "", detail{"workspace": name}, func() error { return e.Engine.ExportWorkspace(ctx, p, name, w) })
}

// ExportArchive records [audit.WorkspaceExport].
func (e *Engine) ExportArchive(ctx context.Context, handle string, w io.Writer) error {
	return e.do(ctx, audit.WorkspaceExport, "", "", detail{"workspace": handle}, func() error { return e.Engine.ExportArchive(ctx, handle, w) })
}

// ImportWorkspace records [audit.WorkspaceImport].
func (e *Engine) ImportWorkspace(ctx context.Context, p sandbox.Principal, name string, r io.Reader) error {
	return e.do(ctx, audit.WorkspaceImport, p, "", detail{"workspace": name}, func() error { return e.Engine.ImportWorkspace(ctx, p, name, r) })
}

// ImportArchive records [audit.WorkspaceImport].
func (e *Engine) ImportArchive(ctx context.Context, handle string, r io.Reader) error {
	return e.do(ctx, audit.WorkspaceImport, "", "", detail{"workspace": handle}, func() error { return e.Engine.ImportArchive(ctx, handle, r) })
}

// DeleteWorkspace records [audit.WorkspaceDelete].
func (e *Engine) DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error {
	return e.do(ctx, audit.WorkspaceDelete, p, "", detail{"workspace": name}, func() error { return e.Engine.DeleteWorkspace(ctx, p, name) })
}

// write records a write with the length and the hash of the bytes that were read.
func (e *Engine) write(ctx context.Context, p sandbox.Principal, id string, d detail, r io.Reader, f func(io.Reader) error) error {
	return e.log.Do(ctx, audit.Record{Action: audit.FileWrite, Principal: p, Sandbox: id, Detail: d}, func(rec *audit.Record) error {
		body := &hashed{ReadCloser: io.NopCloser(r), hash: sha256.New()}
		err := f(body)
		rec.Detail["bytes"], rec.Detail["sha256"] = strconv.FormatInt(body.n, 10), body.sum()
		return err
	})
}

// hashed hashes the bytes that are read. The hash is taken after the last Read.
type hashed struct {
	io.ReadCloser
	hash hash.Hash
	n    int64
}

func (h *hashed) Read(b []byte) (int, error) {
	n, err := h.ReadCloser.Read(b)
	h.hash.Write(b[:n])
	h.n += int64(n)
	return n, err
}

func (h *hashed) sum() string { return fmt.Sprintf("%x", h.hash.Sum(nil)) }

// TakeSnapshot records [audit.SnapshotTake].
func (e *Engine) TakeSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (s sandbox.Snapshot, err error) {
	rec := audit.Record{Action: audit.SnapshotTake, Principal: p, Sandbox: id, Detail: detail{"name": name}}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		s, err = e.Engine.TakeSnapshot(ctx, p, id, name)
		if err == nil {
			rec.Detail["snapshot"] = s.ID
		}
		return err
	})
	return s, err
}

// TakeDiskSnapshot records [audit.SnapshotTake].
func (e *Engine) TakeDiskSnapshot(ctx context.Context, p sandbox.Principal, id, name string) (s sandbox.Snapshot, err error) {
	rec := audit.Record{Action: audit.SnapshotTake, Principal: p, Sandbox: id, Detail: detail{"name": name, "kind": "disk"}}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		s, err = e.Engine.TakeDiskSnapshot(ctx, p, id, name)
		if err == nil {
			rec.Detail["snapshot"] = s.ID
		}
		return err
	})
	return s, err
}

// RemoveSnapshot records [audit.SnapshotDelete].
func (e *Engine) RemoveSnapshot(ctx context.Context, p sandbox.Principal, ref string) error {
	return e.do(ctx, audit.SnapshotDelete, p, "", detail{"snapshot": ref}, func() error { return e.Engine.RemoveSnapshot(ctx, p, ref) })
}

// Rollback records [audit.SandboxRollback].
func (e *Engine) Rollback(ctx context.Context, p sandbox.Principal, id, ref string, endRuns bool) (s sandbox.Snapshot, err error) {
	err = e.do(ctx, audit.SandboxRollback, p, id, detail{"snapshot": ref}, func() error {
		s, err = e.Engine.Rollback(ctx, p, id, ref, endRuns)
		return err
	})
	return s, err
}

// Fork records [audit.SandboxFork], with the copies.
func (e *Engine) Fork(ctx context.Context, p sandbox.Principal, id string, req sandbox.ForkRequest) (forks []sandbox.Fork, err error) {
	rec := audit.Record{Action: audit.SandboxFork, Principal: p, Sandbox: id, Detail: detail{}}
	err = e.log.Do(ctx, rec, func(rec *audit.Record) error {
		forks, err = e.Engine.Fork(ctx, p, id, req)
		var ids []string
		for _, f := range forks {
			if f.Err == nil {
				ids = append(ids, f.Sandbox.ID)
			}
		}
		rec.Detail["copies"] = strings.Join(ids, " ")
		return err
	})
	return forks, err
}
