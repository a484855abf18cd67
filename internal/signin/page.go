package signin

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"strings"
)

//go:embed page.html
var pageText string

//go:embed page.css
var styles string

// pages is the template of all pages.
var pages = template.Must(template.New("page").Parse(pageText))

// A page asks a person to sign in and to decide, or tells something.
type page struct {
	Action  string // path of the form; "" for a page without
	AskCode bool   // asks for a device's user code only
	Client  string
	Place   string // where the client's redirect URI leads; "" for a device
	Local   bool   // whether that is a program of this person's machine
	Code    string // user code of the device, or ""
	Rights  []string
	Hidden  []hidden
	Wrong   string // error of the last attempt, or ""
	Told    string // for a page that only tells something
	Failed  bool   // whether Told is an error

	Styles template.CSS
}

// A hidden is a hidden field of the form.
type hidden struct{ Name, Value string }

// show writes the page. target is a further place to which the form may lead.
func (p page) show(w http.ResponseWriter, status int, target string) {
	p.Styles = template.CSS(styles) // embedded
	var b bytes.Buffer
	if err := pages.Execute(&b, p); err != nil {
		http.Error(w, "internal error", http.StatusInternalServerError)
		return
	}
	sum := sha256.Sum256([]byte(styles))
	h := w.Header()
	h.Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; style-src 'sha256-%s'; form-action %s; frame-ancestors 'none'; base-uri 'none'",
		base64.StdEncoding.EncodeToString(sum[:]), strings.TrimSpace("'self' "+target)))
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Referrer-Policy", "same-origin") // with no-referrer, browsers send the Origin null with the form
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	w.WriteHeader(status)
	w.Write(b.Bytes())
}

func showError(w http.ResponseWriter, status int, text string) {
	page{Told: text, Failed: true}.show(w, status, "")
}

func showDone(w http.ResponseWriter, text string) { page{Told: text}.show(w, http.StatusOK, "") }
