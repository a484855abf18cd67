package dashboard

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/ansi"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The bounds of a run's page.
const (
	maxOutput  = 64 << 10 // bytes of the head, and of the tail, of each stream
	maxResults = 50
	maxText    = 32 << 10 // bytes of one result's text
	maxChart   = 1 << 20  // bytes of a chart's data
	findRuns   = 1000     // runs in which the program is looked for
	runPause   = 500 * time.Millisecond
)

// A runView is the content of a run's page.
type runView struct {
	frame
	runRow
	Lines     []codeLine
	MoreCode  bool // the record has only the beginning of the program
	Out, Err  outputView
	Results   []resultView
	Omitted   int // results that were not kept or are not shown
	Files     []pictureView
	Exception *sandbox.RunError // its traceback is at the end of the standard error
	Stream    string
}

// Going reports whether the run is in progress.
func (v runView) Going() bool { return v.Status != sandbox.RunFinished }

// Quiet reports whether the run wrote and showed nothing.
func (v runView) Quiet() bool {
	return v.Out.Total == 0 && v.Err.Total == 0 && len(v.Results) == 0 && len(v.Files) == 0
}

// A codeLine is a line of a program.
type codeLine struct {
	HTML   template.HTML
	Failed bool // the exception is there
}

// A resultView is a value that a run displayed.
type resultView struct {
	Number  int
	Picture string // path of the picture, or ""
	Text    string
	Cut     bool   // the text is only the beginning
	Chart   string // the data of a chart, as JSON, or ""
	Table   *tableView
}

// A pictureView is a picture that a run left in its workspace.
type pictureView struct {
	Name, Picture string
}

// findRun returns a run of a person, with its program if that is on record.
func (s *Server) findRun(ctx context.Context, sess *session, id string) (sandbox.ListedRun, error) {
	if !sandbox.ValidRunID(id) {
		return sandbox.ListedRun{}, sandbox.Errorf(sandbox.NotFound, "there is no such run")
	}
	list, err := s.opts.Engine.LastRuns(ctx, sess.id.Principal, findRuns)
	if err != nil {
		return sandbox.ListedRun{}, err
	}
	if i := slices.IndexFunc(list, func(r sandbox.ListedRun) bool { return r.ID == id }); i >= 0 {
		return list[i], nil
	}
	run, err := s.await(ctx, sess, id)
	return sandbox.ListedRun{Run: run}, err
}

// await returns a run when it has finished, or as it stands after a while.
func (s *Server) await(ctx context.Context, sess *session, id string) (sandbox.Run, error) {
	soon, cancel := context.WithTimeout(ctx, runPause)
	defer cancel()
	run, err := s.opts.Engine.Wait(soon, sess.id.Principal, id)
	if run.ID != "" && errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return run, err
}

// runView returns the content of the page of a run.
func (s *Server) runView(ctx context.Context, sess *session, run sandbox.ListedRun) (runView, error) {
	v := runView{runRow: newRunRow(run), Stream: runPath(run.ID) + "/events"}
	v.frame = s.frame(sess, "Run "+short(run.ID), "")
	var err error
	if v.Out, err = s.outputView(ctx, sess, run.ID, sandbox.Stdout); err != nil {
		return runView{}, err
	}
	if v.Err, err = s.outputView(ctx, sess, run.ID, sandbox.Stderr); err != nil {
		return runView{}, err
	}
	results, err := s.opts.Engine.Results(ctx, sess.id.Principal, run.ID)
	if err != nil {
		return runView{}, err
	}
	v.Exception, v.Omitted = results.Error, results.Omitted
	for i, r := range results.Results {
		if i == maxResults {
			v.Omitted += len(results.Results) - maxResults
			break
		}
		v.Results = append(v.Results, newResultView(run.ID, i, r))
	}
	for i, name := range pictureNames(results) {
		if i == maxResults {
			break
		}
		v.Files = append(v.Files, pictureView{name, fmt.Sprintf("%s/pictures/%d", runPath(run.ID), i)})
	}
	v.Lines, v.MoreCode = lines(run.Language, run.Program, results.Error), len([]rune(run.Program)) >= 1000
	return v, nil
}

// An outputView is a stream of a run's output: all of it, or its head and its tail.
type outputView struct {
	HTML    template.HTML
	Total   int64 // bytes of the whole stream
	Missing int64 // bytes between head and tail
}

// outputView reads one stream of a run.
func (s *Server) outputView(ctx context.Context, sess *session, id string, stream sandbox.StreamName) (outputView, error) {
	head, total, err := s.opts.Engine.ReadOutput(ctx, sess.id.Principal, id, stream, 0, maxOutput)
	if err != nil {
		return outputView{}, err
	}
	v := outputView{Total: total}
	at, end := int64(len(head)), total
	var tail []byte
	for from := max(at, total-maxOutput); from < end; {
		part, _, err := s.opts.Engine.ReadOutput(ctx, sess.id.Principal, id, stream, from, end-from)
		var gap *sandbox.Gap
		if errors.As(err, &gap) && gap.To > from { // the rest was not kept
			tail, from = nil, gap.To
			continue
		}
		if err != nil {
			return outputView{}, err
		}
		if len(part) == 0 {
			break
		}
		tail = append(tail, part...)
		from += int64(len(part))
	}
	v.Missing = max(0, total-at-int64(len(tail)))
	if v.Missing == 0 {
		v.HTML = coloured(string(head) + string(tail))
		return v, nil
	}
	v.HTML = coloured(string(head)) + template.HTML("\n<span class=\"cut\">… "+sandbox.FormatBytes(v.Missing)+" are not shown …</span>\n") + coloured(string(tail))
	return v, nil
}

// lines returns the lines of a program.
func lines(language, program string, e *sandbox.RunError) []codeLine {
	if program == "" {
		return nil
	}
	var list []codeLine
	if language == "" {
		language = "bash" // a command
	}
	for i, line := range highlighted(language, strings.TrimRight(program, "\n")) {
		list = append(list, codeLine{line, e != nil && e.Line == i+1})
	}
	return list
}

// newResultView returns how a page shows a result: as a picture if it has one, as a
// table, and otherwise as text. Scripts draw charts from their data. Markup of a result is never interpreted.
func newResultView(run string, number int, r sandbox.Result) resultView {
	v := resultView{Number: number}
	if data := r.Data[sandbox.MIMEChart]; len(data) > 0 && len(data) <= maxChart && json.Valid(data) {
		v.Chart = string(data)
	}
	if _, _, ok := pictureOf(r); ok {
		v.Picture = fmt.Sprintf("%s/results/%d", runPath(run), number)
		return v
	}
	types := r.Types()
	if len(types) == 0 {
		return v
	}
	var page string
	if json.Unmarshal(r.Data["text/html"], &page) == nil {
		if t, ok := tableOf(page); ok {
			v.Table = &t
			return v
		}
	}
	value := r.Data[types[0]]
	if json.Unmarshal(value, &v.Text) != nil {
		v.Text = string(value)
	}
	v.Text = string(ansi.Text([]byte(v.Text)))
	if len(v.Text) > maxText {
		v.Text, v.Cut = strings.ToValidUTF8(v.Text[:maxText], ""), true
	}
	return v
}

// pictureOf returns the first picture of a result that browsers show without running
// anything in it.
func pictureOf(r sandbox.Result) (mime string, data sandbox.Base64, ok bool) {
	for _, mime := range r.Types() {
		if !sandbox.IsPicture(mime) {
			continue
		}
		if data, ok := r.Base64(mime); ok && data.PictureType() == mime {
			return mime, data, true
		}
	}
	return "", "", false
}

// pictureNames returns the names of the pictures that a run left in its workspace, in
// order.
func pictureNames(r sandbox.Results) []string {
	var names []string
	for name, p := range r.Files {
		if sandbox.IsPicture(p.MIME) && p.Data.PictureType() == p.MIME {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (s *Server) run(w http.ResponseWriter, r *http.Request, sess *session) error {
	run, err := s.findRun(r.Context(), sess, r.PathValue("id"))
	if err != nil {
		return err
	}
	v, err := s.runView(r.Context(), sess, run)
	if err == nil {
		s.show(w, r, http.StatusOK, "run", v)
	}
	return err
}

func (s *Server) runEvents(w http.ResponseWriter, r *http.Request, sess *session) error {
	run, err := s.findRun(r.Context(), sess, r.PathValue("id"))
	if err != nil {
		return err
	}
	return s.follow(w, r, "run-live", runPause, func(ctx context.Context) (any, bool, error) {
		now, err := s.await(ctx, sess, run.ID)
		if err != nil {
			return nil, false, err
		}
		run.Run = now
		v, err := s.runView(ctx, sess, run)
		return v, err == nil && !v.Going(), err
	})
}

func (s *Server) stopRun(w http.ResponseWriter, r *http.Request, sess *session) error {
	id := r.PathValue("id")
	if _, err := s.opts.Engine.StopRun(r.Context(), sess.id.Principal, id); err != nil {
		return err
	}
	http.Redirect(w, r, runPath(id), http.StatusSeeOther)
	return nil
}

// output downloads one stream of a run's output.
func (s *Server) output(w http.ResponseWriter, r *http.Request, sess *session) error {
	id, stream := r.PathValue("id"), sandbox.StreamName(r.PathValue("stream"))
	if stream != sandbox.Stdout && stream != sandbox.Stderr {
		return sandbox.Errorf(sandbox.NotFound, "there is no such output")
	}
	const piece = 1 << 20
	began := false
	for at := int64(0); ; {
		data, total, err := s.opts.Engine.ReadOutput(r.Context(), sess.id.Principal, id, stream, at, piece)
		var gap *sandbox.Gap
		switch {
		case errors.As(err, &gap) && gap.To > at:
			data, total, at = []byte(sandbox.NotKept(gap.To-at)), max(gap.To+1, total), gap.To
		case err != nil && began:
			panic(http.ErrAbortHandler) // a truncated answer must not look complete
		case err != nil:
			return err
		default:
			at += int64(len(data))
		}
		if !began {
			began = true
			asDownload(w, r, fmt.Sprintf("%s.%s.txt", short(id), stream), -1)
		}
		if _, err := w.Write(data); err != nil || len(data) == 0 || at >= total {
			return nil // complete, or the client is gone
		}
	}
}

// picture answers with the picture of a result.
func (s *Server) picture(w http.ResponseWriter, r *http.Request, sess *session) error {
	results, n, err := s.resultsFor(r, sess)
	if err != nil {
		return err
	}
	if n < len(results.Results) {
		if mime, data, ok := pictureOf(results.Results[n]); ok {
			return sendPicture(w, r, mime, data)
		}
	}
	return errNoPicture
}

// filePicture answers with a picture that a run left in its workspace.
func (s *Server) filePicture(w http.ResponseWriter, r *http.Request, sess *session) error {
	results, n, err := s.resultsFor(r, sess)
	if err != nil {
		return err
	}
	if names := pictureNames(results); n < len(names) {
		p := results.Files[names[n]]
		return sendPicture(w, r, p.MIME, p.Data)
	}
	return errNoPicture
}

var errNoPicture = sandbox.Errorf(sandbox.NotFound, "there is no such picture")

// resultsFor returns the results of the run, and the number, in a request's path.
func (s *Server) resultsFor(r *http.Request, sess *session) (sandbox.Results, int, error) {
	n, err := strconv.ParseUint(r.PathValue("number"), 10, 16)
	if err != nil {
		return sandbox.Results{}, 0, errNoPicture
	}
	results, err := s.opts.Engine.Results(r.Context(), sess.id.Principal, r.PathValue("id"))
	return results, int(n), err
}

// sendPicture answers with a picture. Nothing in it can run, even if a person opens it
// by itself.
func sendPicture(w http.ResponseWriter, r *http.Request, mime string, data sandbox.Base64) error {
	b, err := data.Decode()
	if err != nil {
		return errNoPicture
	}
	sendBytes(w, r, mime, b)
	return nil
}

func sendBytes(w http.ResponseWriter, r *http.Request, mime string, data []byte) {
	protect(w, r)
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("Content-Type", mime)
	h.Set("Content-Length", strconv.Itoa(len(data)))
	h.Set("Cache-Control", "private, no-cache")
	// Ignore the error: the client may be gone.
	_, _ = w.Write(data)
}

// Traffic returns what the run sent and received, or "".
func (v runView) Traffic() string {
	if v.Network == nil {
		return ""
	}
	var sent, received int64
	for _, d := range v.Network.Reached {
		sent, received = sent+d.Sent, received+d.Received
	}
	return sandbox.FormatBytes(sent) + " sent, " + sandbox.FormatBytes(received) + " received"
}
