package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/safepath"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Remote keeps workspaces on another machine, through its [Set.Handler]. The
// secret of [Remote.Key] is on this machine.
type Remote struct {
	names *Set // without a directory of workspaces
	dir   string
	http  http.Client

	mu     sync.Mutex
	disk   diskAnswer
	looked time.Time // when disk was fetched
}

var _ Keeper = (*Remote)(nil)

// RemoteOptions configure a Remote.
type RemoteOptions struct {
	// Secrets is a directory of this machine, for the secret of [Remote.Key]. It
	// is created if it does not exist.
	Secrets string
	// Dir is the directory of the workspaces on the other machine, for mounts.
	Dir string
	// Dial connects to the server of the workspaces.
	Dial func(context.Context) (net.Conn, error)
	// Conversations, if not nil, makes the Remote name them as mcp-code-runner
	// does.
	Conversations *Conversations
}

// OpenRemote opens the workspaces of another machine. It does not connect yet.
// The caller closes the Remote.
func OpenRemote(opts RemoteOptions) (*Remote, error) {
	if err := os.MkdirAll(opts.Secrets, 0o700); err != nil {
		return nil, sandbox.Errorf(sandbox.Unavailable, "open workspaces: %w", err)
	}
	secret, err := readSecret(filepath.Join(opts.Secrets, "secret"))
	if err != nil {
		return nil, sandbox.Wrap(err, "open workspaces", "")
	}
	return &Remote{
		names: &Set{path: opts.Secrets, theirs: opts.Conversations, secret: secret},
		dir:   opts.Dir,
		http: http.Client{Transport: &http.Transport{
			DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return opts.Dial(ctx) },
			DisableCompression:  true,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     time.Minute,
		}},
	}, nil
}

// Timeouts and sizes of answers.
const (
	// answerTime bounds calls that do not take long.
	answerTime = 30 * time.Second
	// diskEvery is how long an answer about the disk is cached.
	diskEvery = 100 * time.Millisecond
	// maxAnswer bounds an answer, in bytes. The largest is a snapshot.
	maxAnswer = 512 << 20
)

// Close closes the idle connections.
func (r *Remote) Close() error {
	r.http.CloseIdleConnections()
	return nil
}

// Conversation is [Set.Conversation].
func (r *Remote) Conversation(p sandbox.Principal, name string) (id ID, ok bool) {
	if id, ok = r.names.Conversation(p, name); !ok {
		return "", false
	}
	if found, there := r.Find(string(id)); there {
		return found, true
	}
	return id, true
}

// Key is [Set.Key].
func (r *Remote) Key(purpose string) []byte { return r.names.Key(purpose) }

// Path returns the path of a workspace on the other machine.
func (r *Remote) Path(id ID) string { return path.Join(r.dir, string(id)) }

// Find is [Set.Find].
func (r *Remote) Find(text string) (ID, bool) {
	if r.names.theirs == nil || !r.names.valid(ID(text)) {
		return "", false
	}
	var found idAnswer
	err := r.ask(http.MethodGet, "/find/"+text, &found)
	return found.ID, err == nil && r.names.valid(found.ID)
}

// Make is [Set.Make].
func (r *Remote) Make(id ID) (bool, error) {
	var made madeAnswer
	err := r.ask(http.MethodPost, "/make/"+string(id), &made)
	return made.Made, err
}

// Remove is [Set.Remove].
func (r *Remote) Remove(id ID) (purge func() error, err error) {
	var taken nameAnswer
	if err := r.ask(http.MethodPost, "/remove/"+string(id), &taken); err != nil {
		return nil, err
	}
	if taken.Name == "" {
		return func() error { return nil }, nil
	}
	return func() error { return r.ask(http.MethodPost, "/purge/"+url.PathEscape(taken.Name), nil) }, nil
}

// Open is [Set.Open].
func (r *Remote) Open(id ID) (Opened, error) {
	if !r.names.valid(id) {
		return nil, sandbox.Errorf(sandbox.NotFound, "there is no such workspace")
	}
	if err := r.ask(http.MethodGet, "/open/"+string(id), nil); err != nil {
		return nil, err
	}
	return remoteWorkspace{r, id}, nil
}

// ask makes a call with a small answer, bounded by answerTime.
func (r *Remote) ask(method, where string, answer any) error {
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	return r.call(ctx, method, where, nil, answer)
}

// call makes a call whose answer is a JSON value.
func (r *Remote) call(ctx context.Context, method, where string, body io.Reader, answer any) error {
	resp, err := r.do(ctx, method, where, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if answer == nil {
		return nil
	}
	return unreachable(json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(answer))
}

// do makes a call. The error has the kind of the remote error. The caller closes
// the body.
func (r *Remote) do(ctx context.Context, method, where string, body io.Reader, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+ServedAt+where, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		req.Header[name] = values
	}
	resp, err := r.http.Do(req)
	if err != nil {
		if sandbox.KindOf(err) != sandbox.Internal || ctx.Err() != nil {
			return nil, err // for example, an error of the body's reader
		}
		return nil, unreachable(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	err = decodeError(resp.Header.Get(headerError))
	if err == nil {
		err = unreachable(fmt.Errorf("the answer is %s", resp.Status))
	}
	return nil, err
}

// unreachable wraps an error of a call to the other machine.
func unreachable(err error) error {
	if err == nil {
		return nil
	}
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "workspaces on the engine: %w", err), "check that the container engine runs")
}

func decodeError(text string) error {
	if text == "" {
		return nil
	}
	plain, err := strconv.Unquote(text)
	var e wireError
	if err == nil {
		err = json.Unmarshal([]byte(plain), &e)
	}
	if err != nil {
		return unreachable(err)
	}
	err = sandbox.Errorf(e.Kind, "%s", e.Text)
	if e.Hint != "" {
		return sandbox.WithHint(err, "%s", e.Hint)
	}
	return err
}

// A remoteWorkspace is a workspace of a Remote. It holds nothing open on the
// other machine.
type remoteWorkspace struct {
	r  *Remote
	id ID
}

func (w remoteWorkspace) Close() error { return nil }

func (w remoteWorkspace) at(what string, query url.Values) string {
	return "/" + what + "/" + string(w.id) + "?" + query.Encode()
}

func (w remoteWorkspace) Write(ctx context.Context, name string, in io.Reader) (int64, error) {
	var n sizeAnswer
	err := w.r.call(ctx, http.MethodPut, w.at("file", url.Values{"name": {name}}), onlyReader{in}, &n)
	return n.Size, err
}

// onlyReader hides the other methods of a reader. So the HTTP client neither
// guesses the length of the body nor closes it.
type onlyReader struct{ io.Reader }

func (w remoteWorkspace) Export(ctx context.Context, out io.Writer, most int64) (safepath.Counts, error) {
	var none safepath.Counts
	resp, err := w.r.do(ctx, http.MethodGet, w.at("export", url.Values{"most": {strconv.FormatInt(most, 10)}}), nil, nil)
	if err != nil {
		return none, err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(out, resp.Body); err != nil {
		return none, err
	}
	return none, decodeError(resp.Trailer.Get(headerError))
}

func (w remoteWorkspace) Import(ctx context.Context, in io.Reader, bytes, files int64) (n safepath.Counts, err error) {
	query := url.Values{"bytes": {strconv.FormatInt(bytes, 10)}, "files": {strconv.FormatInt(files, 10)}}
	err = w.r.call(ctx, http.MethodPut, w.at("import", query), onlyReader{in}, &n)
	return n, err
}

func (w remoteWorkspace) Snapshot(ctx context.Context) (*Snapshot, error) {
	resp, err := w.r.do(ctx, http.MethodGet, w.at("snapshot", nil), nil, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	s, err := ReadSnapshot(io.LimitReader(resp.Body, maxAnswer))
	return s, unreachable(err)
}

func (w remoteWorkspace) Measure(ctx context.Context) (u sandbox.WorkspaceUsage, err error) {
	err = w.r.call(ctx, http.MethodGet, w.at("measure", nil), nil, &u)
	return u, err
}

func (w remoteWorkspace) DiskUsed() (used int64, ok bool) {
	r := w.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) > diskEvery {
		r.disk = diskAnswer{}
		_ = r.ask(http.MethodGet, "/disk", &r.disk) // on an error, the usage is unknown
		r.looked = time.Now()                       // for callers that wait for r.mu
	}
	return r.disk.Used, r.disk.OK
}

func (w remoteWorkspace) Clock() time.Time {
	var now clockAnswer
	if w.r.ask(http.MethodGet, "/clock", &now) != nil {
		return time.Time{} // the zero time includes all earlier changes
	}
	return time.Unix(0, now.Nanos)
}

func (w remoteWorkspace) Read(ctx context.Context, name string) (*File, error) {
	f := &remoteFile{ctx: ctx, w: w, name: name}
	if err := f.open(); err != nil {
		return nil, err
	}
	return &File{f, f.info, f.info.Version}, nil
}

// A remoteFile is read with one call, or with one call for each position.
type remoteFile struct {
	ctx  context.Context // of the reader
	w    remoteWorkspace
	name string
	info fileInfo

	body   io.ReadCloser // nil until it is needed
	at     int64         // the position of body
	offset int64         // the position of the next Read
}

// open requests the file from offset.
func (f *remoteFile) open() error {
	header := http.Header{}
	if f.offset > 0 {
		header.Set("Range", fmt.Sprintf("bytes=%d-", f.offset))
	}
	resp, err := f.w.r.do(f.ctx, http.MethodGet, f.w.at("file", url.Values{"name": {f.name}}), nil, header)
	if err != nil {
		return err
	}
	var info fileInfo
	text, err := strconv.Unquote(resp.Header.Get(headerInfo))
	if err == nil {
		err = json.Unmarshal([]byte(text), &info)
	}
	if err == nil && f.info.Version != "" && f.info.Version != info.Version {
		err = errors.New("the file changed while it was read")
	}
	if err != nil {
		resp.Body.Close()
		return unreachable(err)
	}
	f.info, f.body, f.at = info, resp.Body, f.offset
	return nil
}

func (f *remoteFile) Read(p []byte) (int, error) {
	if f.offset >= f.info.Bytes {
		return 0, io.EOF
	}
	if f.body != nil && f.at != f.offset {
		f.body.Close()
		f.body = nil
	}
	if f.body == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	n, err := f.body.Read(p)
	f.at += int64(n)
	f.offset = f.at
	return n, err
}

func (f *remoteFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.offset
	case io.SeekEnd:
		offset += f.info.Bytes
	}
	if offset < 0 {
		return 0, errors.New("seek before the beginning")
	}
	f.offset = offset
	return offset, nil
}

func (f *remoteFile) Close() error {
	if f.body == nil {
		return nil
	}
	return f.body.Close()
}
