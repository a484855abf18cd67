package e2bapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// home is the working directory of E2B's programs: the home of their user.
const home = "~"

// passes lists the paths, by port, that the guest implements as E2B's agent and
// code interpreter do.
var passes = map[int][]string{
	agentPort: {
		guestapi.PathHealth, guestapi.PathFiles, guestapi.PathMetrics,
		guestapi.ProcStart, guestapi.ProcConnect, guestapi.ProcList, guestapi.ProcUpdate,
		guestapi.ProcSendInput, guestapi.ProcCloseStdin, guestapi.ProcSendSignal,
		guestapi.FSStat, guestapi.FSListDir, guestapi.FSMakeDir, guestapi.FSMove, guestapi.FSRemove,
		guestapi.FSWatchDir, guestapi.FSCreateWatcher, guestapi.FSGetWatcherEvents, guestapi.FSRemoveWatcher,
	},
	interpreterPort: {
		guestapi.PathHealth, guestapi.PathExecute, guestapi.PathContexts,
		guestapi.PathContexts + "/*", guestapi.PathContexts + "/*/restart",
	},
}

// requestHeaders are the only request headers that are forwarded to the guest,
// apart from the metadata of files.
// answerHeaders are the only headers of the guest's answer that the client gets.
// The guest is not trusted: for example, it must not set a cookie for this
// server.
var (
	requestHeaders = []string{
		"Authorization", "Content-Type", "Content-Encoding", "Range", "If-Range", "If-Modified-Since", "If-None-Match",
		guestapi.HeaderProtocolVersion, guestapi.HeaderTimeout, guestapi.HeaderExtensions, "Keepalive-Ping-Interval",
	}
	answerHeaders = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Last-Modified", "Allow", "Accept-Post"}
)

// checkPass refuses paths that the guest does not implement as E2B does.
func checkPass(t target, name string) error {
	known, ok := passes[t.port]
	if !ok {
		return nil // the program on that port decides
	}
	matches := func(pattern string) bool {
		m, err := path.Match(pattern, name)
		return m && err == nil
	}
	if !slices.ContainsFunc(known, matches) {
		return sandbox.Errorf(sandbox.NotFound, "there is no %s at port %d of a sandbox", short(name), t.port)
	}
	return nil
}

// data serves a data-plane request.
func (s *Server) data(w http.ResponseWriter, r *http.Request, t target) {
	if err := checkPass(t, r.URL.Path); err != nil {
		s.Refuse(w, r, err)
		return
	}
	id, _ := auth.FromContext(r.Context())
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	if _, ours := passes[t.port]; !ours {
		s.port(w, r.WithContext(ctx), id.Principal, t)
		return
	}
	if t.port == interpreterPort && r.URL.Path == guestapi.PathContexts && r.Method == http.MethodPost && !s.opts.Access.Check(t.id, r.Header.Get(headerAccess)) {
		if err := checkContextFields(r); err != nil {
			s.Refuse(w, r, err)
			return
		}
	}
	watch := s.watcher(r, t)
	resp, err := s.forward(r.WithContext(ctx), id.Principal, t.id)
	if err != nil {
		s.Refuse(w, r, err)
		return
	}
	resp = watch(resp)
	defer resp.Body.Close()
	h := w.Header()
	for _, name := range answerHeaders {
		if v := resp.Header.Get(name); v != "" {
			h.Set(name, v)
		}
	}
	// A browser must not run the guest's content with this server's origin.
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'")
	if r.URL.Path == guestapi.PathFiles && r.Method == http.MethodGet {
		h.Set("Content-Disposition", "attachment")
	}
	status := resp.StatusCode
	if status < 200 || status > 599 {
		status = http.StatusBadGateway
	}
	if t.port == interpreterPort && r.URL.Path == guestapi.PathHealth && status == http.StatusNoContent {
		h.Set("Content-Type", guestapi.ContentTypeUnary)
		_, _ = io.WriteString(w, guestapi.InterpreterHealth)
		return
	}
	w.WriteHeader(status)
	refused := status >= 400 && r.ContentLength != 0
	if err := relay(w, resp.Body, refused || resp.ContentLength < 0); err != nil {
		// Abort the connection, so that the client does not take a part for the
		// whole.
		panic(http.ErrAbortHandler)
	}
	if refused {
		drainBody(r)
	}
}

// checkContextFields refuses fields beyond E2B's in a request for a context. Its sender
// may run no code, and variables of the environment can make an interpreter run some.
func checkContextFields(r *http.Request) error {
	var in struct {
		Language *string `json:"language,omitempty"`
		Cwd      *string `json:"cwd,omitempty"`
	}
	if err := readBody(r, &in); err != nil {
		return sandbox.WithHint(err, "all other fields need the access token of the sandbox")
	}
	body, err := json.Marshal(in)
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return err
}

// drainBody reads the rest of a refused upload, after its answer was sent. If the
// server closes a connection with unread data, TCP resets it, and the client may
// lose the answer.
func drainBody(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, maxDrain) }

// drain sends the answer of a handler, and then reads what is left of the body.
func drain(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		next(w, r)
		if r.ContentLength != 0 && http.NewResponseController(w).Flush() == nil {
			drainBody(r)
		}
	}
}

// watcher returns a function that makes the journal read a guest's answer along, if
// the request starts a program. It must be called before the request is sent.
func (s *Server) watcher(r *http.Request, t target) func(*http.Response) *http.Response {
	var watch func(id string, request []byte, body io.ReadCloser) io.ReadCloser
	switch {
	case t.port == agentPort && r.URL.Path == guestapi.ProcStart:
		watch = s.journal.watchProcess
	case t.port == interpreterPort && r.URL.Path == guestapi.PathExecute:
		watch = s.journal.watchExecution
	default:
		return func(resp *http.Response) *http.Response { return resp }
	}
	request := &prefix{most: maxRequest}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, request), r.Body}
	return func(resp *http.Response) *http.Response {
		if resp.StatusCode == http.StatusOK {
			resp.Body = watch(t.id, request.bytes(), resp.Body)
		}
		return resp
	}
}

// forward sends a request to the guest. The sandbox must run, or its creator must
// have enabled auto-resume.
func (s *Server) forward(r *http.Request, p sandbox.Principal, id string) (*http.Response, error) {
	sb, err := s.awake(r.Context(), p, id)
	if err != nil {
		return nil, err
	}
	req := r.Clone(r.Context())
	req.Header = http.Header{}
	for _, name := range requestHeaders {
		if v := r.Header.Get(name); v != "" {
			req.Header.Set(name, v)
		}
	}
	for name, values := range r.Header {
		if strings.HasPrefix(name, guestapi.MetadataPrefix) {
			req.Header[name] = values[:1]
		}
	}
	if r.ContentLength == 0 {
		req.Body = http.NoBody
	}
	resp, err := s.opts.Engine.Forward(p, id, programDefaults(sb), asTemplate(req, sb))
	if errors.Is(err, sandbox.Conflict) || errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Unavailable) {
		err = &goneError{err}
	}
	return resp, err
}

// environ returns the variables by which programs know that they run in a sandbox
// of E2B's protocol.
func environ(sb sandbox.Sandbox) map[string]string {
	return map[string]string{"E2B_SANDBOX": "true", "E2B_SANDBOX_ID": sandbox.HostID(sb.ID), "E2B_TEMPLATE_ID": templateOf(sb)}
}

// awake returns a sandbox that runs, or that requests may resume because its
// creator enabled auto-resume.
func (s *Server) awake(ctx context.Context, p sandbox.Principal, id string) (sandbox.Sandbox, error) {
	sb, err := s.opts.Engine.Get(ctx, p, id)
	switch {
	case err != nil:
		return sb, &goneError{err}
	case sb.State == sandbox.Stopped:
		return sb, &goneError{sandbox.Errorf(sandbox.Conflict, "the sandbox has stopped: %s", sb.Cause)}
	case sb.State == sandbox.Hibernated && sb.Labels[labelAutoResume] == "":
		return sb, &goneError{sandbox.Errorf(sandbox.Conflict, "the sandbox is paused; connect to it to resume it")}
	}
	return sb, nil
}

const relaySize = 128 << 10

var relayPool = sync.Pool{New: func() any { return new([relaySize]byte) }}

// relay copies the guest's answer. If live is set, it flushes after each read.
func relay(w http.ResponseWriter, from io.Reader, live bool) error {
	buf := relayPool.Get().(*[relaySize]byte)
	defer relayPool.Put(buf)
	rc := http.NewResponseController(w)
	for {
		n, err := from.Read(buf[:])
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
			if live {
				if err := rc.Flush(); err != nil {
					return err
				}
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// maxDrain bounds the bytes that are read from a refused upload.
const maxDrain = 32 << 20

// lasting are the guest's paths whose requests last as long as the client
// listens.
var lasting = []string{guestapi.ProcStart, guestapi.ProcConnect, guestapi.FSWatchDir, guestapi.PathExecute, guestapi.PathFiles}

// Lasts reports whether a request that Authenticate accepted may last as long as
// its client wants.
func (s *Server) Lasts(r *http.Request) bool {
	if s.isUpload(r) {
		return true
	}
	t, ok := r.Context().Value(targetKey{}).(target)
	_, ours := passes[t.port]
	return ok && (!ours || slices.Contains(lasting, r.URL.Path)) || !ok && isVolumeFile(r)
}

// TakesPort reports whether a request for the host name of a port, which both this
// protocol and links of the server can name, is for this protocol: it has a token
// of this protocol, or the port needs none.
func (s *Server) TakesPort(r *http.Request) bool {
	t, ok, err := targetOf(r)
	return err == nil && ok && t.isPort() && (r.Header.Get(headerTraffic) != "" || s.publicPort(r.Context(), t))
}

// OnPort reports whether a request that Authenticate accepted is for a program on
// a port. A stranger may have sent it, if the port is public.
func (s *Server) OnPort(r *http.Request) bool {
	t, ok := r.Context().Value(targetKey{}).(target)
	return ok && t.isPort()
}

// Streams reports whether the body of a request that Authenticate accepted is
// streamed into the sandbox, into a volume, or into a file of a template. Such a body
// has no size limit here.
func (s *Server) Streams(r *http.Request) bool {
	if s.isUpload(r) {
		return true
	}
	t, ok := r.Context().Value(targetKey{}).(target)
	_, ours := passes[t.port]
	return ok && (!ours || t.port == agentPort && r.URL.Path == guestapi.PathFiles) || !ok && isVolumeFile(r)
}
