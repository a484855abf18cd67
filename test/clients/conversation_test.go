//go:build linux

package clients

import (
	"regexp"
	"strings"
	"testing"
)

// picture is Python that defines a picture, as a plot's library would, with the
// standard library alone.
const picture = `
import struct, zlib
class Plot:
    def __repr__(self): return "a plot"
    def _repr_png_(self):
        def chunk(kind, data):
            return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        rows = b"".join(b"\0" + bytes((x * y) % 251 for x in range(64)) for y in range(64))
        return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 64, 64, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
`

// conversation is the script of the abilities. The first five calls are those whose
// characters are counted.
func conversation() []step {
	inSandbox := func(args map[string]any) func(*model) map[string]any {
		return func(m *model) map[string]any {
			args["sandbox_id"] = m.firstID(sandboxID)
			return args
		}
	}
	return []step{
		{"state", "run_code", func(*model) map[string]any { return map[string]any{"code": "x = 41"} }},
		{"state kept", "run_code", inSandbox(map[string]any{"code": "print(x + 1)"})},
		{"plot", "run_code", inSandbox(map[string]any{"code": picture + "Plot()"})},
		{"failure", "run_code", inSandbox(map[string]any{"code": "print('before')\n1/0"})},
		{"long output", "run_code", inSandbox(map[string]any{"code": "for i in range(4000): print('line', 'abcdefghijklmnopqrstuvwxyz'[i % 26] * 20)\nprint('the end')"})},
		{"plot of a failed run", "run_code", inSandbox(map[string]any{"code": picture + "display(Plot())\nraise ValueError('after the plot')"})},
		// The program waits for the model, so it outlives the wait on any machine.
		{"running", "run_command", inSandbox(map[string]any{"command": "echo begun; read x; echo got-$x", "wait_seconds": 1, "timeout_seconds": 300})},
		{"input", "send_input", func(m *model) map[string]any {
			return map[string]any{"run_id": m.lastID(runID), "text": "hello\n"}
		}},
		{"finished", "get_run", func(m *model) map[string]any {
			r, _ := m.result("running")
			return map[string]any{"run_id": runID.FindString(r.text), "wait_seconds": 30}
		}},
		{"file in", "write_file", inSandbox(map[string]any{"path": "notes/a.txt", "content": "from the model\n"})},
		{"file out", "read_file", inSandbox(map[string]any{"path": "notes/a.txt"})},
		{"file made", "run_command", func(*model) map[string]any {
			return map[string]any{"command": "echo a,b >report.csv", "workspace": "files"} // changes are seen in workspaces
		}},
	}
}

// counted is the number of calls whose characters are counted.
const counted = 5

// timeout is the script of a call that takes longer than the client waits.
func timeout() []step {
	return []step{
		{"sandbox", "run_command", func(*model) map[string]any { return map[string]any{"command": "echo ready"} }},
		{"too long", "run_command", func(m *model) map[string]any {
			return map[string]any{"command": "echo $$ >/tmp/pid; exec sleep 3600", "wait_seconds": 600, "timeout_seconds": 600, "sandbox_id": m.firstID(sandboxID)}
		}},
		// A run that is being ended has some seconds for it.
		{"after it", "run_command", func(m *model) map[string]any {
			return map[string]any{
				"command":    "for i in $(seq 25); do kill -0 $(cat /tmp/pid) 2>/dev/null || { echo it-has-ended; exit; }; sleep 0.2; done; echo it-goes-on",
				"sandbox_id": m.firstID(sandboxID),
			}
		}},
	}
}

var (
	sandboxID = regexp.MustCompile(`sbx_[a-z2-7]{26}`)
	runID     = regexp.MustCompile(`run_[a-z2-7]{26}`)
)

// firstID returns the first identifier that reached the model. Without one, the
// call is refused, and its result shows that.
func (m *model) firstID(form *regexp.Regexp) string {
	for _, r := range m.results {
		if id := form.FindString(r.text); id != "" {
			return id
		}
	}
	return "none-reached-the-model"
}

// lastID returns the identifier in the last result.
func (m *model) lastID(form *regexp.Regexp) string {
	return form.FindString(m.results[len(m.results)-1].text)
}

// must are the texts that each client shows its model of a step, whether it passes
// on the text of a result, its JSON, or both.
var must = []struct {
	step string
	want []string
}{
	{"state", []string{"sbx_"}},
	{"state kept", []string{"42"}},
	{"failure", []string{"before", "ZeroDivisionError", "failed"}},
	{"long output", []string{"run_", "ok", "get_run"}},
	{"plot of a failed run", []string{"after the plot", "failed"}},
	{"running", []string{"run_", "running", "begun", "get_run"}},
	{"finished", []string{"got-hello", "ok"}},
	{"file out", []string{"from the model"}},
	{"file made", []string{"report.csv"}},
}

// checkConversation reports everything that each client must show its model.
func checkConversation(t *testing.T, m *model) {
	t.Helper()
	for _, c := range must {
		r, ok := m.result(c.step)
		if !ok {
			t.Errorf("%s: no result reached the model", c.step)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(r.text, want) {
				t.Errorf("%s: %q did not reach the model, but:\n%.3000s", c.step, want, r.text)
			}
		}
	}
}

var (
	identifier = regexp.MustCompile(`(run|sbx|ctx)_[a-z2-7]{26}`)
	// Claude Code names the file of a picture.
	pictureFile = regexp.MustCompile(`\[Image: source: [^\]]*\]`)
	number      = regexp.MustCompile(`[0-9]+(\.[0-9]+)?`)
)

// characters counts a text so that each run gives the same count: a number, such as
// a duration, is one character.
func characters(text string) int {
	text = pictureFile.ReplaceAllString(text, "[Image: source: file]")
	text = identifier.ReplaceAllString(text, "run_abcdefghijklmnopqrstuvwxyz")
	return len([]rune(number.ReplaceAllString(text, "0")))
}
