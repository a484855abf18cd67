package mcpserver

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fakeEngine is an Engine whose programs are scripts of one step a line:
//
//	out TEXT, err TEXT   write a line (\r and \n are escapes)
//	repeat N TEXT        write it N times, numbered
//	sleep DURATION       or until stopped
//	read                 read a line of input and write it
//	show MIME JSON       show a result of that type; before it |MIME JSON for more
//	value TEXT           the value of the last expression
//	ask PROMPT           say that it waits for input, and read a line
//	raise TEXT           an exception in line 2
//	undefined NAME       the exception for a name that is not defined
//	exit N               end with that status
//	verdict CODE         end with that verdict
//	fail KIND            Start returns an error of that kind
//	panic                Start panics
type fakeEngine struct {
	mu        sync.Mutex
	sandboxes map[string]*fakeSandbox
	runs      map[string]*fakeRun
	requests  []sandbox.RunRequest
	keyed     map[string]keyedRun // by principal and hash of the key
	creates   []sandbox.CreateRequest
	snapshots []sandbox.Snapshot // the newest first
	stops     int                // calls of StopRun that stopped something
	waiting   atomic.Int64       // calls of Wait in progress
	wg        sync.WaitGroup
}

type fakeSandbox struct {
	sandbox.Sandbox
	owner sandbox.Principal
	files map[string][]byte
}

type chunk struct {
	stream sandbox.StreamName
	data   []byte
}

func newFakeEngine() *fakeEngine {
	return &fakeEngine{sandboxes: map[string]*fakeSandbox{}, runs: map[string]*fakeRun{}, keyed: map[string]keyedRun{}}
}

// A keyedRun is the run of a request with a key.
type keyedRun struct {
	id      string
	request [32]byte
}

func (e *fakeEngine) KeyedRun(_ context.Context, p sandbox.Principal, key sandbox.RunKey) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, ok := e.keyed[string(p)+string(key.Hash[:])]
	switch {
	case !ok:
		return "", sandbox.Errorf(sandbox.NotFound, "no run has this key")
	case r.request != key.Request:
		return "", sandbox.Errorf(sandbox.Conflict, "idempotency_key: a call with other arguments had this key")
	}
	return r.id, nil
}

// close stops every run and waits for it.
func (e *fakeEngine) close() {
	e.mu.Lock()
	for _, r := range e.runs {
		r.once.Do(func() { close(r.stop) })
	}
	e.mu.Unlock()
	e.wg.Wait()
}

func (e *fakeEngine) stopped() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stops
}

func (e *fakeEngine) lastRequest() sandbox.RunRequest {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.requests[len(e.requests)-1]
}

func (e *fakeEngine) Create(_ context.Context, p sandbox.Principal, r sandbox.CreateRequest) (sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.creates = append(e.creates, r)
	limits := r.Limits.Or(sandbox.DefaultLimits())
	if err := limits.Check(sandbox.Limits{MemoryBytes: 4 << 30}); err != nil {
		return sandbox.Sandbox{}, sandbox.Wrap(err, "create sandbox", "")
	}
	now := time.Now().UTC()
	sb := &fakeSandbox{
		owner: p,
		files: map[string][]byte{},
		Sandbox: sandbox.Sandbox{
			ID: sandbox.NewID(), Name: r.Name, State: sandbox.Running, Driver: "scripted",
			Image: cmp.Or(r.Image, sandbox.ImageHost), Network: cmp.Or(r.Network, sandbox.NetworkNone), Limits: limits,
			Created: now, Used: now, Expires: now.Add(limits.Idle),
			Receipt: sandbox.Receipt{
				{Name: sandbox.ControlMemory, Asked: "512 MiB", Value: "512 MiB", Mechanism: "a script", Enforced: true},
				{Name: sandbox.ControlCPU, Asked: "1"},
			},
		},
	}
	e.sandboxes[sb.ID] = sb
	return sb.Sandbox, nil
}

func (e *fakeEngine) find(p sandbox.Principal, id string) (*fakeSandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if sb := e.sandboxes[id]; sb != nil && sb.owner == p {
		return sb, nil
	}
	return nil, sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "sandbox_id: there is no sandbox %q", id), "list_sandboxes shows those there are")
}

func (e *fakeEngine) Get(_ context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return sb.Sandbox, nil
}

func (e *fakeEngine) List(_ context.Context, p sandbox.Principal) ([]sandbox.Sandbox, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	var list []sandbox.Sandbox
	for _, sb := range e.sandboxes {
		if sb.owner == p {
			list = append(list, sb.Sandbox)
		}
	}
	slices.SortFunc(list, func(a, b sandbox.Sandbox) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

func (e *fakeEngine) SetNetwork(_ context.Context, p sandbox.Principal, id string, n sandbox.Network) (sandbox.Sandbox, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return sandbox.Sandbox{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if sb.Network == "" || sb.Network == sandbox.NetworkNone {
		return sandbox.Sandbox{}, sandbox.Errorf(sandbox.Unsupported, "network: the sandbox has none")
	}
	sb.Network = n
	return sb.Sandbox, nil
}

func (e *fakeEngine) Stop(_ context.Context, p sandbox.Principal, id string) error {
	sb, err := e.find(p, id)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	sb.State, sb.Cause = sandbox.Stopped, "stopped by its owner"
	return nil
}

func (e *fakeEngine) Start(ctx context.Context, p sandbox.Principal, r sandbox.RunRequest) (sandbox.Run, error) {
	e.mu.Lock()
	e.requests = append(e.requests, r)
	e.mu.Unlock()
	script := cmp.Or(r.Code, strings.Join(r.Commands, "\n"))
	if kind, ok := strings.CutPrefix(script, "fail "); ok {
		return sandbox.Run{}, sandbox.Wrap(sandbox.Errorf(sandbox.Kind(kind), "as the script says"), "start run", "")
	}
	if script == "panic" {
		panic("as the script says")
	}
	if r.Language != "" && r.Language != "python" {
		return sandbox.Run{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "language: this image has no %q", r.Language), "it has python")
	}
	if r.SandboxID == "" {
		sb, err := e.Create(ctx, p, r.New)
		if err != nil {
			return sandbox.Run{}, err
		}
		r.SandboxID = sb.ID
	}
	sb, err := e.find(p, r.SandboxID)
	if err != nil {
		return sandbox.Run{}, err
	}
	if sb.State == sandbox.Stopped {
		return sandbox.Run{}, sandbox.Errorf(sandbox.Conflict, "sandbox_id: %s has stopped", r.SandboxID)
	}
	run := &fakeRun{
		owner: p, stop: make(chan struct{}), done: make(chan struct{}), changed: make(chan struct{}),
		run:      sandbox.Run{ID: sandbox.NewRunID(), SandboxID: r.SandboxID, Status: sandbox.RunRunning, Started: time.Now()},
		log:      map[sandbox.StreamName][]byte{},
		language: r.Language, program: script,
		input: r.Stdin, eof: !r.KeepStdin, keep: r.KeepStdin,
	}
	run.undone = r.RollbackOnFailure
	if s := r.Service; s != nil {
		run.run.Service = &sandbox.Service{Name: s.Name, State: sandbox.ServiceRunning, Restart: s.Restart}
	}
	if r.Context != "" {
		run.run.Context = &sandbox.RunContext{Name: r.Context, Language: "python", Count: 1}
	}
	e.mu.Lock()
	e.runs[run.run.ID] = run
	if r.Key != nil {
		e.keyed[string(p)+string(r.Key.Hash[:])] = keyedRun{run.run.ID, r.Key.Request}
	}
	e.mu.Unlock()
	e.wg.Go(func() { run.play(script) })
	return run.get(), nil
}

func (e *fakeEngine) Install(ctx context.Context, p sandbox.Principal, r sandbox.PackagesRequest) (sandbox.Run, error) {
	if r.New.Network == "" && r.SandboxID == "" {
		return sandbox.Run{}, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "network: pip must reach pypi.org:443"), "make a new sandbox with network pypi.org:443")
	}
	var script strings.Builder
	for _, name := range r.Packages {
		script.WriteString("out installed " + name + " 1.0\n")
	}
	return e.Start(ctx, p, sandbox.RunRequest{SandboxID: r.SandboxID, New: r.New, Language: r.Language, Code: script.String()})
}

func (e *fakeEngine) Languages(ctx context.Context, p sandbox.Principal, id string, r sandbox.CreateRequest) ([]sandbox.Language, string, error) {
	if id == "" {
		sb, err := e.Create(ctx, p, r)
		if err != nil {
			return nil, "", err
		}
		id = sb.ID
	}
	if _, err := e.find(p, id); err != nil {
		return nil, "", err
	}
	return []sandbox.Language{
		{Name: "python", Version: "3.11.2", Program: "/usr/bin/python3", Contexts: true, Packages: []sandbox.Package{{Name: "numpy", Version: "1.24.2"}}},
		{Name: "sh", Program: "/bin/sh", Contexts: true},
		{Name: "perl", Version: "5.36.0", Program: "/usr/bin/perl"},
		{Name: "julia", Missing: "use an image that has it, such as julia:latest"},
	}, id, nil
}

func (e *fakeEngine) Contexts(_ context.Context, p sandbox.Principal, id string) ([]sandbox.Context, error) {
	if _, err := e.find(p, id); err != nil {
		return nil, err
	}
	return []sandbox.Context{{Name: "default", Language: "python", Runs: 2, Busy: true}}, nil
}

func (e *fakeEngine) RemoveContext(_ context.Context, p sandbox.Principal, id, name, language string) error {
	if _, err := e.find(p, id); err != nil {
		return err
	}
	if name != sandbox.DefaultContext || language != "python" {
		return sandbox.Errorf(sandbox.NotFound, "context: there is no context %s of %s in the sandbox", name, language)
	}
	return nil
}

// Every principal has one workspace, which is always in use.

func (e *fakeEngine) Workspaces(_ context.Context, p sandbox.Principal) ([]sandbox.Workspace, error) {
	return []sandbox.Workspace{{Name: "of " + string(p), Usage: sandbox.WorkspaceUsage{Bytes: 2048, Files: 3}, InUse: true}}, nil
}

func (e *fakeEngine) Workspace(ctx context.Context, p sandbox.Principal, name string) (sandbox.Workspace, error) {
	all, err := e.Workspaces(ctx, p)
	if err != nil || all[0].Name != name {
		return sandbox.Workspace{}, sandbox.Errorf(sandbox.NotFound, "workspace: there is no %q", name)
	}
	all[0].Quota.Bytes = 1 << 20
	return all[0], nil
}

func (e *fakeEngine) DeleteWorkspace(ctx context.Context, p sandbox.Principal, name string) error {
	_, err := e.Workspace(ctx, p, name)
	if err == nil {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Conflict, "workspace: %q is in use", name), "stop the sandboxes that have it first")
	}
	return err
}

func (e *fakeEngine) findRun(p sandbox.Principal, id string) (*fakeRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.runs[id]; r != nil && r.owner == p {
		return r, nil
	}
	return nil, sandbox.Errorf(sandbox.NotFound, "run_id: there is no run %q", id)
}

func (e *fakeEngine) Wait(ctx context.Context, p sandbox.Principal, id string) (sandbox.Run, error) {
	r, err := e.findRun(p, id)
	if err != nil {
		return sandbox.Run{}, err
	}
	e.waiting.Add(1)
	defer e.waiting.Add(-1)
	select {
	case <-r.done:
		return r.get(), nil
	case <-ctx.Done():
		return r.get(), ctx.Err()
	}
}

// WaitReady finds every service ready.
func (e *fakeEngine) WaitReady(ctx context.Context, p sandbox.Principal, id string) (sandbox.Run, error) {
	r, err := e.findRun(p, id)
	if err == nil && r.get().Service != nil {
		return r.get(), nil
	}
	return e.Wait(ctx, p, id)
}

func (e *fakeEngine) Services(ctx context.Context, p sandbox.Principal, id string) ([]sandbox.Run, error) {
	runs, err := e.Runs(ctx, p, id, 1000)
	return slices.DeleteFunc(runs, func(r sandbox.Run) bool { return r.Service == nil || r.Status == sandbox.RunFinished }), err
}

func (e *fakeEngine) Follow(ctx context.Context, p sandbox.Principal, id string, emit func(sandbox.StreamName, []byte) error) error {
	r, err := e.findRun(p, id)
	if err != nil {
		return err
	}
	for i := 0; ; {
		r.mu.Lock()
		order, changed, finished := r.order, r.changed, r.run.Status == sandbox.RunFinished
		r.mu.Unlock()
		for ; i < len(order); i++ {
			if err := emit(order[i].stream, order[i].data); err != nil {
				return err
			}
		}
		if finished {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (e *fakeEngine) Output(_ context.Context, p sandbox.Principal, id string, budget int) (sandbox.Output, error) {
	r, err := e.findRun(p, id)
	if err != nil {
		return sandbox.Output{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var o sandbox.Output
	o.Stdout, o.StdoutFrom, o.Omitted.StdoutBytes = headAndTail(r.log[sandbox.Stdout], budget)
	o.Stderr, o.StderrFrom, o.Omitted.StderrBytes = headAndTail(r.log[sandbox.Stderr], budget)
	o.StdoutBytes, o.StderrBytes = int64(len(r.log[sandbox.Stdout])), int64(len(r.log[sandbox.Stderr]))
	return o, nil
}

func (e *fakeEngine) Results(_ context.Context, p sandbox.Principal, id string) (sandbox.Results, error) {
	r, err := e.findRun(p, id)
	if err != nil {
		return sandbox.Results{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.results, nil
}

func headAndTail(b []byte, budget int) (text string, from, omitted int64) {
	if len(b) <= budget {
		return string(b), int64(len(b)), 0
	}
	return string(b[:budget/2]) + "\n[…]\n" + string(b[len(b)-budget/2:]), int64(budget / 2), int64(len(b) - budget/2*2)
}

func (e *fakeEngine) ReadOutput(_ context.Context, p sandbox.Principal, id string, s sandbox.StreamName, offset, limit int64) ([]byte, int64, error) {
	r, err := e.findRun(p, id)
	if err != nil {
		return nil, 0, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.log[s]
	if gap := r.gap; s == gap.Stream && offset < gap.To {
		if offset >= gap.From {
			return nil, 0, sandbox.Errorf(sandbox.NotFound, "%w", &gap)
		}
		limit = min(limit, gap.From-offset)
	}
	from := min(offset, int64(len(b)))
	return bytes.Clone(b[from:min(from+limit, int64(len(b)))]), int64(len(b)), nil
}

func (e *fakeEngine) StopRun(_ context.Context, p sandbox.Principal, id string) (sandbox.Run, error) {
	r, err := e.findRun(p, id)
	if err != nil {
		return sandbox.Run{}, err
	}
	r.once.Do(func() {
		close(r.stop)
		e.mu.Lock()
		e.stops++
		e.mu.Unlock()
	})
	<-r.done
	return r.get(), nil
}

func (e *fakeEngine) SendInput(_ context.Context, p sandbox.Principal, id string, data []byte, eof bool) error {
	r, err := e.findRun(p, id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.keep || r.eof {
		return sandbox.Errorf(sandbox.Conflict, "run_id: the input of %s is closed", id)
	}
	r.input = append(r.input, data...)
	r.eof = eof
	r.signal()
	return nil
}

func (e *fakeEngine) ReadFile(_ context.Context, p sandbox.Principal, id, name string, offset, length int64) (io.ReadCloser, int64, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return nil, 0, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	b, ok := sb.files[absolute(name)]
	if !ok {
		return nil, 0, sandbox.Errorf(sandbox.NotFound, "path: there is no file %s", name)
	}
	from := min(offset, int64(len(b)))
	return io.NopCloser(bytes.NewReader(b[from:min(from+length, int64(len(b)))])), int64(len(b)), nil
}

func (e *fakeEngine) WriteFile(_ context.Context, p sandbox.Principal, id, name string, r io.Reader, appendTo bool) error {
	sb, err := e.find(p, id)
	if err != nil {
		return err
	}
	if name == "/refused" {
		return sandbox.Errorf(sandbox.Invalid, "path: %s is refused", name)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if appendTo {
		b = append(sb.files[absolute(name)], b...)
	}
	sb.files[absolute(name)] = b
	sb.Used = time.Now()
	return nil
}

func (e *fakeEngine) StatFile(ctx context.Context, p sandbox.Principal, id, name string) (sandbox.File, error) {
	files, _, err := e.ListFiles(ctx, p, id, path.Dir(absolute(name)), 1)
	if err != nil {
		return sandbox.File{}, err
	}
	for _, f := range files {
		if f.Path == absolute(name) {
			return f, nil
		}
	}
	return sandbox.File{}, sandbox.Errorf(sandbox.NotFound, "path: there is no file %s", name)
}

func (e *fakeEngine) Runs(_ context.Context, p sandbox.Principal, id string, limit int) ([]sandbox.Run, error) {
	if _, err := e.find(p, id); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var runs []sandbox.Run
	for _, r := range e.runs {
		if run := r.get(); run.SandboxID == id {
			runs = append(runs, run)
		}
	}
	slices.SortFunc(runs, func(a, b sandbox.Run) int { return a.Started.Compare(b.Started) })
	return runs[max(0, len(runs)-limit):], nil
}

func (e *fakeEngine) LastRuns(_ context.Context, p sandbox.Principal, limit int) ([]sandbox.ListedRun, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	runs := []sandbox.ListedRun{}
	for _, r := range e.runs {
		if r.owner == p {
			runs = append(runs, sandbox.ListedRun{Run: r.get(), Language: r.language, Program: r.program})
		}
	}
	slices.SortFunc(runs, func(a, b sandbox.ListedRun) int { return b.Started.Compare(a.Started) })
	return runs[:min(len(runs), limit)], nil
}

func (e *fakeEngine) ListFiles(_ context.Context, p sandbox.Principal, id, dir string, _ int) ([]sandbox.File, bool, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return nil, false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var files []sandbox.File
	for name, b := range sb.files {
		if path.Dir(name) == path.Clean(dir) {
			files = append(files, sandbox.File{Path: name, Type: sandbox.TypeFile, Size: int64(len(b)), Mode: "-rw-r--r--", Owner: sandbox.User, Modified: sb.Created})
		}
	}
	slices.SortFunc(files, func(a, b sandbox.File) int { return strings.Compare(a.Path, b.Path) })
	return files, false, nil
}

// EditFile makes edits that apply once.
func (e *fakeEngine) EditFile(_ context.Context, p sandbox.Principal, id, name string, edits []sandbox.Edit) (sandbox.Edited, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return sandbox.Edited{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	text := string(sb.files[absolute(name)])
	var done sandbox.Edited
	for i, edit := range edits {
		n := strings.Count(text, edit.Old)
		if n == 0 || n > 1 && !edit.All {
			return done, sandbox.Errorf(sandbox.Invalid, "edits[%d]: old_string: %d matches", i, n)
		}
		text = strings.ReplaceAll(text, edit.Old, edit.New)
		done.Replacements += n
		done.Lines = append(done.Lines, 1)
	}
	sb.files[absolute(name)] = []byte(text)
	done.Size = int64(len(text))
	return done, nil
}

// SearchFiles finds a text, and has omitted as many lines as it found.
func (e *fakeEngine) SearchFiles(_ context.Context, p sandbox.Principal, id string, r sandbox.SearchRequest) (sandbox.Found, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return sandbox.Found{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	var f sandbox.Found
	for _, name := range slices.Sorted(maps.Keys(sb.files)) {
		f.Searched++
		for i, line := range strings.Split(string(sb.files[name]), "\n") {
			if strings.Contains(line, r.Pattern) {
				f.Matches += 2
				f.Omitted++
				f.MatchedFiles++
				f.Files = append(f.Files, sandbox.FoundFile{Path: name, Lines: []sandbox.FoundLine{{Line: i + 1, Text: line, Match: true}}})
			}
		}
	}
	if r.Glob == "slow" {
		f.Cut = sandbox.Cut{Incomplete: true, Reason: "the time for a search has passed", At: "/data/x"}
	}
	return f, nil
}

// Diff says that every file is new. Since is the reason for which one is left out.
func (e *fakeEngine) Diff(_ context.Context, p sandbox.Principal, id string, r sandbox.DiffRequest) (sandbox.Diff, error) {
	sb, err := e.find(p, id)
	if err != nil {
		return sandbox.Diff{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	d := sandbox.Diff{Path: absolute(r.Path)}
	for _, name := range slices.Sorted(maps.Keys(sb.files)) {
		d.Created++
		d.Files = append(d.Files, sandbox.FileChange{Path: name, Size: int64(len(sb.files[name])), Change: sandbox.FileCreated})
		d.Text += "diff --git a" + name + " b" + name + "\n"
	}
	if r.Since != "" {
		d.LeftOut = []sandbox.LeftOut{{Path: "large", Reason: r.Since}}
		d.NotShown = 2
	}
	return d, nil
}

func (e *fakeEngine) GlobFiles(ctx context.Context, p sandbox.Principal, id, dir, glob string, _ int) (sandbox.Listing, error) {
	files, _, err := e.ListFiles(ctx, p, id, dir, 1)
	l := sandbox.Listing{Omitted: 3}
	for _, f := range files {
		if ok, _ := path.Match(glob, path.Base(f.Path)); ok {
			l.Files = append(l.Files, f)
		}
	}
	return l, err
}

func absolute(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(sandbox.WorkDir, name)
}

var _ Engine = (*fakeEngine)(nil)
