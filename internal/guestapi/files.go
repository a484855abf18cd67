package guestapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// FileOptions are options of a file call.
type FileOptions struct {
	User string // sandbox.User if empty
}

// wirePath returns path as valid UTF-8 for JSON. If that changed it, wirePath
// also returns the path's bytes.
func wirePath(path string) (string, []byte) {
	if utf8.ValidString(path) {
		return path, nil
	}
	return strings.ToValidUTF8(path, "\uFFFD"), []byte(path)
}

// Stat describes a file. It does not follow a symbolic link.
func (c *Client) Stat(ctx context.Context, path string, opts FileOptions) (*Entry, error) {
	var req PathRequest
	req.Path, req.RawPath = wirePath(path)
	var out EntryResponse
	if err := c.call(ctx, "stat file", FSStat, opts.User, &req, &out); err != nil {
		return nil, err
	}
	return &out.Entry, nil
}

// ListDir lists a directory; see [ListDirRequest] for the depth.
func (c *Client) ListDir(ctx context.Context, path string, depth int, opts FileOptions) (*ListDirResponse, error) {
	const op = "list directory"
	if depth < 0 || depth > 1<<20 {
		return nil, sandbox.Errorf(sandbox.Invalid, "%s: depth %d is out of range", op, depth)
	}
	req := ListDirRequest{Depth: uint32(depth)}
	req.Path, req.RawPath = wirePath(path)
	var out ListDirResponse
	if err := c.call(ctx, op, FSListDir, opts.User, &req, &out); err != nil {
		return nil, err
	}
	return &out, nil
}

// MakeDir makes a directory and its parents. The error is of kind Conflict if it
// exists.
func (c *Client) MakeDir(ctx context.Context, path string, opts FileOptions) error {
	var req PathRequest
	req.Path, req.RawPath = wirePath(path)
	return c.call(ctx, "make directory", FSMakeDir, opts.User, &req, nil)
}

// Move renames a file or directory, and makes the parents of the destination.
func (c *Client) Move(ctx context.Context, from, to string, opts FileOptions) error {
	var req MoveRequest
	req.Source, req.RawSource = wirePath(from)
	req.Destination, req.RawDestination = wirePath(to)
	return c.call(ctx, "move file", FSMove, opts.User, &req, nil)
}

// Remove removes a file, or a directory with its contents. The error is of kind
// NotFound if the path does not exist.
func (c *Client) Remove(ctx context.Context, path string, opts FileOptions) error {
	var req PathRequest
	req.Path, req.RawPath = wirePath(path)
	return c.call(ctx, "remove file", FSRemove, opts.User, &req, nil)
}

// filesTarget returns the URL of a file's contents. The query can carry any
// bytes.
func filesTarget(path, user string, more url.Values) string {
	q := url.Values{"path": {path}, "username": {user}}
	if user == "" {
		q.Set("username", sandbox.User)
	}
	for k, v := range more {
		q[k] = v
	}
	return PathFiles + "?" + q.Encode()
}

// Read opens a file at offset, in bytes, for length bytes. A length below 0
// reads to the end. Size is the size of the whole file. The caller closes the
// reader.
func (c *Client) Read(ctx context.Context, path string, offset, length int64, opts FileOptions) (r io.ReadCloser, size int64, err error) {
	const op = "read file"
	if offset < 0 {
		return nil, 0, sandbox.Errorf(sandbox.Invalid, "%s: offset %d is negative", op, offset)
	}
	req, err := newRequest(ctx, http.MethodGet, filesTarget(path, opts.User, nil), nil, opts.User)
	if err != nil {
		return nil, 0, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	switch {
	case length > 0 && offset+length > offset:
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", offset, offset+length-1))
	case offset > 0:
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", offset))
	}
	resp, err := c.do(op, req)
	if err != nil {
		return nil, 0, err
	}
	switch resp.StatusCode {
	case http.StatusPartialContent:
		first, size, err := parseContentRange(resp.Header.Get(headerRange))
		if err == nil && first != offset {
			err = errors.New("the guest sent another range than asked for")
		}
		if err != nil {
			resp.Body.Close()
			return nil, 0, lost(ctx, op, err)
		}
		return &contents{ctx: ctx, op: op, body: resp.Body, want: wanted(size-offset, length)}, size, nil

	case http.StatusOK:
		size := resp.ContentLength
		if size < 0 {
			resp.Body.Close()
			return nil, 0, lost(ctx, op, errors.New("the guest did not tell the file's size"))
		}
		// The guest may send the whole file, even if the request has a range.
		skip := min(offset, size)
		if _, err := io.CopyN(io.Discard, resp.Body, skip); err != nil {
			resp.Body.Close()
			return nil, 0, lost(ctx, op, err)
		}
		return &contents{ctx: ctx, op: op, body: resp.Body, want: wanted(size-skip, length)}, size, nil

	case http.StatusRequestedRangeNotSatisfiable: // offset is at or past the end
		defer closeBody(resp)
		text, ok := strings.CutPrefix(resp.Header.Get(headerRange), "bytes */")
		size, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || size < 0 || offset < size {
			return nil, 0, lost(ctx, op, errors.New("the guest refused a range without telling the size"))
		}
		return http.NoBody, size, nil
	}
	defer closeBody(resp)
	return nil, 0, answered(ctx, op, resp)
}

// Preview returns the preview of a picture in a file: the picture itself or a
// smaller one, of at most [sandbox.MaxPreview] bytes. The error is of kind
// Invalid if there is none; its text has the reason. It is Unsupported or
// NotFound if the guest cannot make previews.
func (c *Client) Preview(ctx context.Context, path, mime string, opts FileOptions) ([]byte, error) {
	const op = "preview picture"
	q := url.Values{"path": {path}, "username": {cmp.Or(opts.User, sandbox.User)}, "type": {mime}}
	req, err := newRequest(ctx, http.MethodGet, PathPreviews+"?"+q.Encode(), nil, opts.User)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	return c.bytes(ctx, op, req, sandbox.MaxPreview)
}

// Sixel returns a picture as sixels, at most width pixels wide and
// [sandbox.MaxSixel] bytes long. The guest is not trusted: the sixels must be
// checked before a terminal gets them. The error is of kind Invalid if there are
// none. It is Unsupported or NotFound if the guest cannot make sixels.
func (c *Client) Sixel(ctx context.Context, picture sandbox.Base64, mime string, width int) ([]byte, error) {
	const op = "make sixels"
	q := url.Values{"type": {mime}, "width": {strconv.Itoa(width)}}
	req, err := newRequest(ctx, http.MethodPost, PathSixels+"?"+q.Encode(), strings.NewReader(string(picture)), "")
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	return c.bytes(ctx, op, req, sandbox.MaxSixel)
}

// bytes sends req and returns the body of the answer, at most limit bytes. op
// names the operation in errors.
func (c *Client) bytes(ctx context.Context, op string, req *http.Request, limit int64) ([]byte, error) {
	resp, err := c.do(op, req)
	if err != nil {
		return nil, err
	}
	defer closeBody(resp)
	if resp.StatusCode != http.StatusOK {
		return nil, answered(ctx, op, resp)
	}
	data, err := readBounded(resp.Body, limit)
	if err != nil {
		return nil, lost(ctx, op, err)
	}
	return data, nil
}

// wanted returns how many of left bytes a read of length returns.
func wanted(left, length int64) int64 {
	if length < 0 {
		return left
	}
	return min(left, length)
}

// parseContentRange parses "bytes 5-9/100" as 5 and 100.
func parseContentRange(s string) (first, size int64, err error) {
	var last int64
	rest, ok := strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(rest, "/")
	from, to, ok3 := strings.Cut(span, "-")
	if ok && ok2 && ok3 {
		first, err = strconv.ParseInt(from, 10, 64)
		if err == nil {
			last, err = strconv.ParseInt(to, 10, 64)
		}
		if err == nil {
			size, err = strconv.ParseInt(total, 10, 64)
		}
		if err == nil && 0 <= first && first <= last && last < size {
			return first, size, nil
		}
	}
	return 0, 0, fmt.Errorf("bad range %q in the reply", cleanText(s))
}

// contents reads exactly the requested part of a file. A shorter body is an
// error.
type contents struct {
	ctx  context.Context
	op   string
	body io.ReadCloser
	want int64
}

func (r *contents) Read(p []byte) (int, error) {
	if r.want == 0 {
		return 0, io.EOF
	}
	n, err := r.body.Read(p[:min(int64(len(p)), r.want)])
	r.want -= int64(n)
	if err == io.EOF && r.want == 0 {
		return n, io.EOF
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		err = lost(r.ctx, r.op, err)
	}
	return n, err
}

func (r *contents) Close() error { return r.body.Close() }

// WriteOptions are options of Write.
type WriteOptions struct {
	User   string
	Append bool // append to the file, as bytes come
}

// Write writes r to a file and makes the file's parents. It streams r, so r is
// never in memory as a whole. When Write fails, a Read of r may still be under
// way.
func (c *Client) Write(ctx context.Context, path string, r io.Reader, opts WriteOptions) (*WriteInfo, error) {
	const op = "write file"
	more := url.Values{}
	if opts.Append {
		more.Set("append", "true")
	}
	// Hide the Close of r: the transport would close it, and r belongs to the
	// caller.
	src := &source{r: r}
	req, err := newRequest(ctx, http.MethodPost, filesTarget(path, opts.User, more), src, opts.User)
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%s: %w", op, err)
	}
	req.Header.Set("Content-Type", "application/octet-stream")
	resp, err := c.do(op, req)
	if err != nil {
		if cause := src.failure(); cause != nil {
			return nil, sandbox.Errorf(sandbox.KindOf(cause), "%s: read source: %w", op, cause)
		}
		return nil, err
	}
	defer closeBody(resp)
	if resp.StatusCode/100 != 2 {
		return nil, answered(ctx, op, resp)
	}
	reply, err := readBounded(resp.Body, 64<<10)
	if err != nil {
		return nil, lost(ctx, op, err)
	}
	var infos []WriteInfo
	if err := json.Unmarshal(reply, &infos); err != nil {
		return nil, lost(ctx, op, fmt.Errorf("decode reply: %w", err))
	}
	if len(infos) != 1 {
		return nil, lost(ctx, op, fmt.Errorf("%d files in the reply to one", len(infos)))
	}
	return &infos[0], nil
}

// source records the error of the caller's reader.
type source struct {
	r io.Reader

	mu  sync.Mutex
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.mu.Lock()
		s.err = err
		s.mu.Unlock()
	}
	return n, err
}

func (s *source) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Watch streams changes below a directory until ctx ends or the Watcher is
// closed. The watch is active when Watch returns. The caller closes the Watcher.
func (c *Client) Watch(ctx context.Context, path string, recursive bool, opts FileOptions) (*Watcher, error) {
	req := WatchDirRequest{Recursive: recursive}
	req.Path, req.RawPath = wirePath(path)
	s, err := c.open(ctx, "watch directory", FSWatchDir, opts.User, 0, &req)
	if err != nil {
		return nil, err
	}
	w := &Watcher{s: s}
	for {
		m, err := w.message()
		if err != nil {
			w.Close()
			return nil, err
		}
		if m.Start != nil {
			return w, nil
		}
	}
}
