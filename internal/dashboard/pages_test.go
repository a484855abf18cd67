package dashboard

import (
	"bytes"
	"context"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// paths are all pages with data of alice.
var paths = []string{
	Path, Path + "sandboxes/" + box, Path + "runs/" + theRun,
	Path + "sandboxes/" + box + "/events", Path + "runs/" + theRun + "/events",
	Path + "runs/" + theRun + "/output/stdout", Path + "runs/" + theRun + "/output/stderr",
	Path + "sandboxes/" + box + "/preview?port=8000",
	Path + "workspaces", Path + "settings", Path + "try", Path + "usage",
	Path + "sandboxes/" + box + "/files", ofFile("file", named), ofFile("file", "a.png"), ofFile("file", "binary"), ofFile("file", "empty"),
	ofFile("download", named), ofFile("picture", "a.png"),
	Path + "runs/" + theRun + "/results/0", Path + "runs/" + theRun + "/pictures/0",
}

// ofFile returns the path of a page about a file of the sandbox.
func ofFile(page, name string) string {
	return Path + "sandboxes/" + box + "/" + page + "?" + url.Values{"path": {"/data/" + name}}.Encode()
}

// TestHostile shows data with markup in every place.
func TestHostile(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	for _, path := range paths {
		w.engine.box.State = sandbox.Running
		if strings.HasSuffix(path, "/events") {
			w.engine.box.State = sandbox.Stopped // so that its stream ends
		}
		if path == Path+"events" {
			continue // TestNowStream follows it
		}
		res, body := w.get(path)
		if res.StatusCode != 200 {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
		h := res.Header
		if h.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(h.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: headers %v", path, h)
		}
		switch kind := h.Get("Content-Type"); {
		case strings.HasPrefix(kind, "text/html"), kind == "text/event-stream":
			if strings.Contains(body, named) || strings.Contains(body, "\x1b") || strings.Contains(body, "\xff") {
				t.Errorf("%s has what a program wrote:\n%s", path, body)
			}
			if strings.Contains(path, "runs/run_") && !strings.Contains(body, `<span class="a-f1">red&lt;script&gt;`) {
				t.Errorf("%s lacks the coloured output:\n%s", path, body)
			}
		case kind == "application/octet-stream":
			if !strings.HasPrefix(h.Get("Content-Disposition"), "attachment") {
				t.Errorf("%s: headers %v", path, h)
			}
		case kind == "image/png":
			if body != string(png) || !strings.Contains(h.Get("Content-Security-Policy"), "sandbox") {
				t.Errorf("%s: %q, headers %v", path, body, h)
			}
		default:
			t.Errorf("%s has the type %s", path, kind)
		}
	}
	for _, path := range []string{"results/1", "results/2", "results/3", "results/4", "results/-1", "pictures/1", "output/other"} {
		if res, body := w.get(Path + "runs/" + theRun + "/" + path); res.StatusCode != 404 {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
}

// TestForeignPrincipal has bob look at everything of alice.
func TestForeignPrincipal(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("bob")
	for _, path := range paths {
		res, body := w.get(path)
		want := 404
		switch path {
		case Path, Path + "workspaces", Path + "settings", Path + "try", Path + "usage":
			want = 200
		}
		if res.StatusCode != want || strings.Contains(body, box) || strings.Contains(body, "alice") {
			t.Errorf("%s: %d %s", path, res.StatusCode, body)
		}
	}
	for _, path := range []string{"sandboxes/" + box, "runs/" + theRun} {
		if res, _ := w.post(Path+path+"/stop", url.Values{}); res.StatusCode != 404 {
			t.Errorf("stop %s: %d", path, res.StatusCode)
		}
	}
	if len(w.engine.stopped) > 0 {
		t.Errorf("stopped: %v", w.engine.stopped)
	}
	if res, _ := w.get(Path + "nothing"); res.StatusCode != 404 {
		t.Errorf("a page that does not exist: %d", res.StatusCode)
	}
}

func TestStop(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	w.engine.run.Status = sandbox.RunRunning
	for _, path := range []string{"runs/" + theRun, "sandboxes/" + box} {
		if _, body := w.get(Path + path); !strings.Contains(body, `action="/ui/`+path+`/stop"`) {
			t.Errorf("%s has no button: %s", path, body)
		}
		if res, _ := w.post(Path+path+"/stop", url.Values{}); res.StatusCode != 303 || res.Header.Get("Location") != Path+path {
			t.Errorf("stop %s: %d to %s", path, res.StatusCode, res.Header.Get("Location"))
		}
	}
	if len(w.engine.stopped) != 2 {
		t.Errorf("stopped: %v", w.engine.stopped)
	}
	if _, body := w.get(Path + "sandboxes/" + box); strings.Contains(body, "/stop\"") {
		t.Error("a stopped sandbox has a button")
	}
}

// TestLargeOutput shows a run with 100 MB of output, whose bytes all change the style.
func TestLargeOutput(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	all := bytes.Repeat([]byte("\x1b[31m<\x1b[32m<"), 100<<20/12)
	w.engine.out = map[sandbox.StreamName][]byte{sandbox.Stdout: all}
	_, body := w.get(Path + "runs/" + theRun)
	if len(body) > 2<<20 || !strings.Contains(body, "are not shown") {
		t.Errorf("the page has %d bytes", len(body))
	}
	if _, body := w.get(Path + "runs/" + theRun + "/output/stdout"); body != string(all) {
		t.Errorf("the download has %d bytes", len(body))
	}
}

// TestManySandboxes lists as many live sandboxes as the engine does.
func TestManySandboxes(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	w.engine.many = 1000
	_, body := w.get(Path)
	if rows := strings.Count(body, `data-key="sbx_`); rows != 1000 || len(body) > 2<<20 {
		t.Errorf("the page has %d rows and %d bytes", rows, len(body))
	}
}

// TestCause has lists of runs say why a run failed.
func TestCause(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	long := strings.Repeat("é", causeOnLine)
	for name, tt := range map[string]struct {
		verdict sandbox.Verdict
		want    string
	}{
		"a failure":   {sandbox.Verdict{Code: sandbox.Failed, Cause: "it raised\nan <b>error</b>"}, "It raised an &lt;b&gt;error&lt;/b&gt;"},
		"a long text": {sandbox.Verdict{Code: sandbox.Timeout, Cause: long + "é"}, long + " …"},
		"success":     {sandbox.Verdict{Code: sandbox.OK, Cause: "a cause"}, ""},
		"cancelled":   {sandbox.Verdict{Code: sandbox.Cancelled, Cause: "a cause"}, ""},
		"no cause":    {sandbox.Verdict{Code: sandbox.Failed}, ""},
	} {
		w.engine.run.Verdict = tt.verdict
		for _, path := range []string{Path, Path + "sandboxes/" + box} {
			_, body := w.get(path)
			_, got, found := strings.Cut(body, `<span class="sub why">`)
			got, _, _ = strings.Cut(got, "</span>")
			if got != tt.want || found != (tt.want != "") {
				t.Errorf("%s, %s: %q, want %q", name, path, got, tt.want)
			}
		}
	}
	w.engine.run.Status = sandbox.RunRunning
	w.engine.run.Verdict = sandbox.Verdict{}
	if _, body := w.get(Path); strings.Contains(body, "sub why") {
		t.Error("a run in progress has failed")
	}
}

// TestShellInList gives interactive shells a name.
func TestShellInList(t *testing.T) {
	shell := sandbox.ListedRun{Program: "/bin/sh -c '" + shellScript + "'"}
	if row := newRunRow(shell); row.Line != "shell" {
		t.Errorf("a shell is %q", row.Line)
	}
	shell.Language = "bash"
	if row := newRunRow(shell); row.Line == "shell" {
		t.Error("code that starts a shell is called one")
	}
}

// TestFirstPage keeps what a browser loads for the first page small.
func TestFirstPage(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn("alice")
	_, page := w.get(Path)
	total := len(page)
	later := []string{"chart.js", "table.js", "terminal.js", "xterm.mjs", "addon-fit.mjs", "xterm.css"}
	for name := range staticTypes {
		if _, ok := openStatic(name); !ok && strings.HasPrefix(name, "xterm") || !ok && name == "addon-fit.mjs" {
			continue // this build has no terminal
		}
		path, err := asset(name)
		if err != nil {
			t.Fatal(err)
		}
		if loaded := !slices.Contains(later, name); strings.Contains(page, path) != loaded {
			t.Errorf("the page loads %s: %v", path, !loaded)
		}
		res, body := w.get(path)
		if res.StatusCode != 200 || !strings.Contains(res.Header.Get("Cache-Control"), "immutable") || res.Header.Get("Content-Type") != staticTypes[name] {
			t.Errorf("%s: %d %v", path, res.StatusCode, res.Header)
		}
		if !slices.Contains(later, name) {
			total += len(body)
		}
	}
	if total > 100_000 {
		t.Errorf("the first page has %d bytes", total)
	}
	for _, bad := range []string{"style=", "onclick", "<style", "javascript:"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if res, _ := w.get(Path + "static/../dashboard.go"); res.StatusCode == 200 {
		t.Error("other files are served")
	}
}

// TestRunStream follows a run until its end.
func TestRunStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Now = time.Now })
		w.signIn("alice")
		w.engine.run.Status = sandbox.RunRunning
		res, body := w.get(Path + "runs/" + theRun + "/events")
		if res.Header.Get("Content-Type") != "text/event-stream" || strings.Count(body, "event: page\n") != 2 || !strings.HasSuffix(body, "event: over\n\n") {
			t.Errorf("%v\n%s", res.Header, body)
		}
	})
}

// TestForeignStream has bob follow the page of live sandboxes while alice has one.
func TestForeignStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Now = time.Now })
		w.signIn("bob")
		ctx, leave := context.WithCancel(t.Context())
		rec, done := httptest.NewRecorder(), make(chan struct{})
		r := w.request("GET", Path+"events", nil).WithContext(ctx)
		go func() {
			defer close(done)
			w.server.Authenticate(w.server).ServeHTTP(rec, r)
		}()
		time.Sleep(2*aliveEvery + pollEvery)
		leave()
		<-done
		if body := rec.Body.String(); !strings.Contains(body, "No live sandboxes") || strings.Contains(body, box) || strings.Contains(body, theRun) {
			t.Errorf("the stream is\n%s", body)
		}
	})
}

// TestNowStream changes a sandbox while a person looks, leaves it unchanged for a
// while, and goes.
func TestNowStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, func(o *Options) { o.Now = time.Now })
		w.signIn("alice")
		ctx, leave := context.WithCancel(t.Context())
		rec, done := httptest.NewRecorder(), make(chan struct{})
		r := w.request("GET", Path+"events", nil).WithContext(ctx)
		go func() {
			defer close(done)
			w.server.Authenticate(w.server).ServeHTTP(rec, r)
		}()
		time.Sleep(pollEvery + time.Millisecond)
		w.engine.mu.Lock()
		w.engine.box.Name = "renamed"
		w.engine.mu.Unlock()
		time.Sleep(2*aliveEvery + pollEvery)
		leave()
		<-done
		body := rec.Body.String()
		if strings.Count(body, "event: page\n") != 2 || !strings.Contains(body, "renamed") || !strings.Contains(body, "event: alive\n") {
			t.Errorf("the stream is\n%s", body)
		}
	})
}

func TestColoured(t *testing.T) {
	for in, want := range map[string]string{
		"":                                "",
		"a<b>&\"'":                        "a&lt;b&gt;&amp;&#34;&#39;",
		"\x1b[1;31mx\x1b[0my":             `<span class="a-b a-f1">x</span>y`,
		"\x1b[m\x1b[97mx":                 `<span class="a-f15">x</span>`,
		"\x1b[38;5;196mx":                 `<span class="a-f9">x</span>`,
		"\x1b[38;2;0;0;0;4mx":             `<span class="a-u a-f0">x</span>`,
		"\x1b[48;5;255mx":                 `<span class="a-g7">x</span>`,
		"\x1b[38;5mx\x1b[38mx":            `<span class="a-f0">x</span>x`,
		"\x1b[999;38;5;99999mx":           `<span class="a-f7">x</span>`,
		"\x1b]0;title\x07x":               "x",
		"\x1b]8;;http://a\x1b\\x\x1b]8;;": "x",
		"10%\r20%\n":                      "20%\n",
		"a\x1b[31mb\x1b[2Kc\n":            `<span class="a-f1">c` + "\n</span>",
		"é\xc2©\xc2":                      "é\ufffd©\ufffd",
		"\u202eevil\u2066\ufeff":          "\ufffdevil\ufffd\ufffd",
		"\x00\x08\x7f\t":                  "␀␈␡\t",
		"\x1b[31mtwo\nlines":              "<span class=\"a-f1\">two\nlines</span>",
	} {
		if got := string(coloured(in)); got != want {
			t.Errorf("%q becomes %q, want %q", in, got, want)
		}
	}
}

func FuzzColoured(f *testing.F) {
	f.Add("\x1b[1;38;5;200mx\r\x1b[K<script>\u009b31m\n")
	f.Fuzz(func(t *testing.T, in string) {
		out := string(coloured(in))
		for rest := out; ; {
			i := strings.IndexByte(rest, '<')
			if i < 0 {
				break
			}
			if rest = rest[i:]; !strings.HasPrefix(rest, `<span class="a-`) && !strings.HasPrefix(rest, "</span>") {
				t.Fatalf("%q becomes %q", in, out)
			}
			rest = rest[1:]
		}
		if strings.Count(out, "<span") != strings.Count(out, "</span>") || strings.ContainsRune(out, 0x1b) {
			t.Fatalf("%q becomes %q", in, out)
		}
	})
}
