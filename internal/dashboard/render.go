package dashboard

import (
	"bytes"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"html/template"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/webmodule"
)

//go:embed pages/*.html
var pageFiles embed.FS

//go:embed static
var staticFiles embed.FS

// templates are all pages. Each has the name of its file, without the ending.
var templates = template.Must(parsePages(template.New("").Funcs(template.FuncMap{
	"bytes":    sandbox.FormatBytes,
	"clock":    clock,
	"ago":      ago,
	"took":     took,
	"millis":   func(n int64) string { return took(time.Duration(n) * time.Millisecond) },
	"short":    short,
	"title":    func(v any) string { return words(fmt.Sprint(v)) },
	"tone":     tone,
	"asset":    asset,
	"where":    where,
	"gibHours": gibHours,
	"cpus":     cpus,
	"sentence": sentence,
})))

// sentence returns a text with a capital letter at its beginning, if that is a word and no
// name of a file or an argument.
func sentence(text string) string {
	first, _, _ := strings.Cut(text, " ")
	if first == "" || strings.Trim(first, "abcdefghijklmnopqrstuvwxyz") != "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// A frame is the part of each page around its content.
type frame struct {
	Title     string
	Here      string // name of the page in the navigation, or ""
	Principal string // of the person who signed in, or ""
	Operator  bool   // the person may see the audit log
	MayChange bool   // the person may do more than read
	Version   string
	Refresh   string // path of the page that the browser loads next, or ""
}

func (s *Server) frame(sess *session, title, here string) frame {
	return frame{Title: title, Here: here, Principal: principalName(sess.id.Principal), Operator: isOperator(sess), MayChange: sess.id.Can(auth.ScopeRun), Version: s.opts.Version}
}

// principalName returns a principal's name for people.
func principalName(p sandbox.Principal) string {
	return strings.TrimPrefix(string(p), sandbox.TokenPrefix)
}

// hostName matches a Host header that may be in a Content-Security-Policy.
var hostName = regexp.MustCompile(`^[A-Za-z0-9.-]+(:[0-9]+)?$`)

// protect sets the headers that restrict the use of an answer by pages. Scripts and
// styles come from the directory of static files only, because programs of sandboxes
// answer at other paths of the same host.
func protect(w http.ResponseWriter, r *http.Request) { protectFraming(w, r, "'none'") }

// protectFraming is like protect, for a page with a frame from one source.
func protectFraming(w http.ResponseWriter, r *http.Request, source string) {
	static := "'self'"
	if hostName.MatchString(r.Host) {
		static = r.Host + Path + "static/"
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; script-src "+static+"; style-src "+static+
		"; frame-src "+source+"; img-src 'self'; connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Cache-Control", "no-store")
}

// show answers with a page.
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, name string, view any) {
	s.answer(w, r, status, name, view, "'none'")
}

// showFraming answers with a page that has a frame from one source.
func (s *Server) showFraming(w http.ResponseWriter, r *http.Request, name string, view any, source string) {
	s.answer(w, r, http.StatusOK, name, view, source)
}

// answer answers with a page.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, status int, name string, view any, frames string) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, name+".html", view); err != nil {
		s.opts.Log.Error("render page", "page", name, "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	protectFraming(w, r, frames)
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	w.WriteHeader(status)
	// Ignore the error: the client may be gone.
	_, _ = w.Write(b.Bytes())
}

// A problemView is the content of a page that says an error.
type problemView struct {
	frame
	Message, Hint string
	SignedOut     bool
}

// Refuse answers with a page that says an error. It hides the details of internal
// errors.
func (s *Server) Refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := sandbox.ProblemOf(err, nil)
	status := p.Kind.HTTPStatus()
	if p.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.RetryAfter))
	}
	v := problemView{frame: frame{Title: problemTitle(p.Kind), Version: s.opts.Version}, Message: p.Message, Hint: p.Hint}
	if sess, ok := sessionOf(r.Context()); ok {
		v.Principal, v.Operator = principalName(sess.id.Principal), isOperator(sess)
	}
	switch p.Kind {
	case sandbox.Internal:
		if r.Context().Err() == nil {
			s.opts.Log.Error("show page", "path", r.URL.Path, "error", err)
		}
		v.Message = "The server's log says what went wrong."
	case sandbox.Unauthenticated:
		v.SignedOut = true
	case sandbox.NotFound:
		v.Message, v.Hint = "It never existed, it is no longer kept, or it belongs to somebody else.", ""
	}
	s.show(w, r, status, "problem", v)
}

func problemTitle(k sandbox.Kind) string {
	switch k {
	case sandbox.NotFound:
		return "Not found"
	case sandbox.Unauthenticated:
		return "Signed out"
	case sandbox.Forbidden:
		return "Not allowed"
	case sandbox.Exhausted:
		return "Too many requests"
	case sandbox.Internal:
		return "Something broke"
	}
	return "That did not work"
}

// A staticFile is a file that all browsers may get.
type staticFile struct {
	data []byte
	mime string
}

var staticTypes = map[string]string{
	"app.js":      "text/javascript; charset=utf-8",
	"chart.js":    "text/javascript; charset=utf-8",
	"table.js":    "text/javascript; charset=utf-8",
	"style.css":   "text/css; charset=utf-8",
	"terminal.js": "text/javascript; charset=utf-8",
	// From npm, see npm/terminal.sh; perhaps not in this build.
	"xterm.mjs":     "text/javascript; charset=utf-8",
	"addon-fit.mjs": "text/javascript; charset=utf-8",
	"xterm.css":     "text/css; charset=utf-8",
	"icon.svg":      "image/svg+xml",
}

func openStatic(name string) (staticFile, bool) {
	mime, ok := staticTypes[name]
	if !ok {
		return staticFile{}, false
	}
	switch name {
	case "chart.js":
		return staticFile{[]byte(webmodule.Chart), mime}, true
	case "table.js":
		return staticFile{[]byte(webmodule.Table), mime}, true
	}
	data, err := staticFiles.ReadFile("static/" + name)
	return staticFile{data, mime}, err == nil
}

// asset returns the URL of a static file. It changes with the content, so browsers
// may keep the file for long.
func asset(name string) (string, error) {
	f, ok := openStatic(name)
	if !ok {
		return "", errors.New("there is no static file " + name)
	}
	sum := fnv.New64a()
	sum.Write(f.data)
	return Path + "static/" + name + "?v=" + hex.EncodeToString(sum.Sum(nil)), nil
}

func (s *Server) static(w http.ResponseWriter, r *http.Request) {
	f, ok := openStatic(r.PathValue("name"))
	if !ok {
		s.Refuse(w, r, sandbox.Errorf(sandbox.NotFound, "there is no such file"))
		return
	}
	protect(w, r)
	h := w.Header()
	h.Set("Content-Type", f.mime)
	h.Set("Content-Length", strconv.Itoa(len(f.data)))
	h.Set("Cache-Control", "no-cache")
	if r.URL.Query().Has("v") {
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(f.data)
}

// stamp is a time in two forms: for programs, and for people without scripts.
func stamp(t time.Time, kind string) template.HTML {
	if t.IsZero() {
		return "–"
	}
	t = t.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" data-show="%s">%s</time>`,
		t.Format(time.RFC3339), kind, t.Format("2 Jan 15:04:05 UTC")))
}

// clock shows a time of day, and ago how long ago it is, or how long until it.
func clock(t time.Time) template.HTML { return stamp(t, "clock") }
func ago(t time.Time) template.HTML   { return stamp(t, "ago") }

// took writes a duration with three digits.
func took(d time.Duration) string {
	switch {
	case d >= sandbox.Forever:
		return "no limit"
	case d >= 2*time.Hour && d%time.Hour == 0:
		return strconv.Itoa(int(d.Hours())) + " h"
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
	case d >= time.Minute && d%time.Minute == 0:
		return strconv.Itoa(int(d.Minutes())) + " min"
	case d >= time.Minute:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	case d >= time.Second:
		return strconv.FormatFloat(math.Round(d.Seconds()*10)/10, 'f', -1, 64) + " s"
	}
	return strconv.Itoa(int(d.Milliseconds())) + " ms"
}

// short shortens an identifier for a list.
func short(id string) string {
	if prefix, rest, ok := strings.Cut(id, "_"); ok && len(rest) > 8 {
		return prefix + "_" + rest[:8]
	}
	return id
}

// words turns a name of the API into words.
func words(name string) string {
	text := strings.ReplaceAll(name, "_", " ")
	switch text {
	case "":
		return ""
	case string(sandbox.OK):
		return "OK"
	}
	return strings.ToUpper(text[:1]) + text[1:]
}

// tone returns the class of a state or a verdict: good, bad, busy or quiet.
func tone(v any) string {
	switch fmt.Sprint(v) {
	case string(sandbox.Running), string(sandbox.ServiceStarting), string(sandbox.ServiceRestarting):
		return "busy"
	case string(sandbox.OK):
		return "good"
	case string(sandbox.Hibernated), string(sandbox.Stopped), string(sandbox.Cancelled), string(sandbox.ServiceEnded):
		return "quiet"
	}
	return "bad"
}
