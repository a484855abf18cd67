//go:build linux

package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// An mcpProcess is a server that a script speaks to over stdio.
type mcpProcess struct {
	ts     *testscript.TestScript
	cmd    *exec.Cmd
	cancel context.CancelFunc
	in     io.WriteCloser
	out    io.Reader
	lines  *bufio.Scanner
	id     int
	stderr bytes.Buffer // may be read after Wait
}

// startMCP starts a command as a client of MCP would, and initializes.
func startMCP(ts *testscript.TestScript, command []string) *mcpProcess {
	path, err := lookPath(ts, command[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	cmd := exec.CommandContext(ctx, path, command[1:]...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "GLOVEBOX_DRIVER", "GLOVEBOX_DOCKER_HOST", "GLOVEBOX_STATE_DIR", "GLOVEBOX_REGISTRIES", "TMPDIR", "INTERPRETER_TYPE", "GLOVEBOX_TEST_AUTO", "GLOVEBOX_REQUIRE_ISOLATION"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	p := &mcpProcess{ts: ts, cmd: cmd, cancel: cancel}
	// The buffer of the script has no lock: a script that fails reads it while the
	// program still writes.
	cmd.Stderr = &p.stderr
	p.in, err = cmd.StdinPipe()
	ts.Check(err)
	p.out, err = cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	p.lines = bufio.NewScanner(p.out)
	p.lines.Buffer(nil, 16<<20)
	p.call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"script","version":"1"}}`)
	_, err = io.WriteString(p.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`+"\n")
	ts.Check(err)
	return p
}

// call sends a request and returns the answer.
func (p *mcpProcess) call(method, params string) string {
	p.id++
	if params == "" {
		params = "{}"
	}
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, p.id, method, params)
	if _, err := io.WriteString(p.in, request+"\n"); err != nil {
		p.fail("send %s: %v", request, err)
	}
	for p.lines.Scan() {
		var m struct {
			ID *int `json:"id"`
		}
		if err := json.Unmarshal(p.lines.Bytes(), &m); err != nil {
			p.fail("not a message: %q: %v", p.lines.Text(), err)
		}
		if m.ID != nil && *m.ID == p.id {
			return p.lines.Text()
		}
	}
	p.fail("no answer to %s: %v", request, p.lines.Err())
	return ""
}

// end closes the server's input and waits for its end.
func (p *mcpProcess) end() {
	defer p.cancel()
	p.ts.Check(p.in.Close())
	if rest, err := io.ReadAll(p.out); err != nil || len(rest) > 0 {
		p.fail("after the last answer: %q, %v", rest, err)
	}
	err := p.cmd.Wait()
	fmt.Fprint(p.ts.Stderr(), p.stderr.String())
	p.ts.Check(err)
}

// fail ends the program and the script, and logs the standard error of the program.
func (p *mcpProcess) fail(format string, args ...any) {
	p.cancel()
	_ = p.cmd.Wait() // it was killed
	p.ts.Logf("[stderr of the server]\n%s", p.stderr.String())
	p.ts.Fatalf(format, args...)
}

// cmdMCP speaks to a server over stdio: it starts the command after "--",
// initializes, sends the requests of a file, one a line, each after the answer
// to the one before, closes the input, and writes the answers to standard
// output: mcp requests -- glovebox mcp
func cmdMCP(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "--" {
		ts.Fatalf("usage: mcp requests-file -- command [args...]")
	}
	p := startMCP(ts, args[2:])
	for r := range strings.SplitSeq(strings.TrimSpace(ts.ReadFile(args[0])), "\n") {
		method, params, _ := strings.Cut(r, " ")
		fmt.Fprintln(ts.Stdout(), p.call(method, params))
	}
	p.end()
}

// A turn is one call of a conversation and the texts that are to come back.
type turn struct {
	call    string // "tool {arguments}", or "read URI"
	isError bool
	want    []string
}

// parseConversation reads calls, a line each, every one followed by the lines
// of its answer with "= " before them. A call with "! " before it is to give an
// error. In both <NAME> stands for a word: that of the first answer which has
// it. <*> is anything within a line, and a line of <...> is any lines.
func parseConversation(ts *testscript.TestScript, text string) []turn {
	var turns []turn
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "="):
			if len(turns) == 0 {
				ts.Fatalf("an answer before any call: %s", line)
			}
			t := &turns[len(turns)-1]
			t.want = append(t.want, strings.TrimPrefix(strings.TrimPrefix(line, "="), " "))
		default:
			call, isError := strings.CutPrefix(line, "! ")
			turns = append(turns, turn{call: call, isError: isError})
		}
	}
	return turns
}

var placeholder = regexp.MustCompile(`<([A-Z_]+|\*|\.\.\.)>`)

// pattern makes a regular expression of lines that are expected; names are
// those of its groups, in order.
func (t turn) pattern(known map[string]string) (re *regexp.Regexp, names []string) {
	var b strings.Builder
	text := strings.Join(t.want, "\n")
	at := 0
	for _, m := range placeholder.FindAllStringSubmatchIndex(text, -1) {
		b.WriteString(regexp.QuoteMeta(text[at:m[0]]))
		at = m[1]
		name := text[m[2]:m[3]]
		value, ok := known[name]
		switch {
		case name == "*":
			b.WriteString(`.*`)
		case name == "...":
			b.WriteString(`(?s:.*)`)
		case ok:
			b.WriteString(regexp.QuoteMeta(value))
		default:
			b.WriteString(`([^\s"]+)`)
			names = append(names, name)
		}
	}
	b.WriteString(regexp.QuoteMeta(text[at:]))
	return regexp.MustCompile(`^` + b.String() + `$`), names
}

// cmdConverse replays a conversation with a server over stdio and compares what
// it answers: converse conversation-file -- glovebox mcp --profile automata
func cmdConverse(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 || args[1] != "--" {
		ts.Fatalf("usage: converse conversation-file -- command [args...]")
	}
	p := startMCP(ts, args[2:])
	known := map[string]string{}
	for _, t := range parseConversation(ts, ts.ReadFile(args[0])) {
		call := placeholder.ReplaceAllStringFunc(t.call, func(name string) string {
			if value, ok := known[strings.Trim(name, "<>")]; ok {
				return value
			}
			return name
		})
		name, arguments, _ := strings.Cut(call, " ")
		var answer string
		if name == "read" {
			answer = p.call("resources/read", fmt.Sprintf(`{"uri":%q}`, arguments))
		} else {
			answer = p.call("tools/call", fmt.Sprintf(`{"name":%q,"arguments":%s}`, name, arguments))
		}
		got, isError := answerText(ts, answer)
		if isError != t.isError {
			p.fail("%s\nisError is %v:\n%s", call, isError, got)
		}
		re, names := t.pattern(known)
		m := re.FindStringSubmatch(strings.TrimSuffix(got, "\n"))
		if m == nil {
			p.fail("%s\nwant:\n%s\ngot:\n%s", call, strings.Join(t.want, "\n"), got)
		}
		for i, name := range names {
			known[name] = m[i+1]
		}
	}
	p.end()
}

// answerText is the text of a tool's answer or a resource, and of an error that
// is one of the protocol. Pictures are told by their type.
func answerText(ts *testscript.TestScript, answer string) (text string, isError bool) {
	var m struct {
		Result struct {
			IsError bool
			Content []struct{ Type, Text, MIMEType string }
			// of a resource
			Contents []struct{ URI, Text string }
		}
		Error *struct{ Message string }
	}
	if err := json.Unmarshal([]byte(answer), &m); err != nil {
		ts.Fatalf("%v: %s", err, answer)
	}
	if m.Error != nil {
		return m.Error.Message, true
	}
	var parts []string
	for _, c := range m.Result.Content {
		if c.Type == "text" {
			parts = append(parts, c.Text)
		} else {
			parts = append(parts, "["+c.Type+" "+c.MIMEType+"]")
		}
	}
	for _, c := range m.Result.Contents {
		parts = append(parts, "["+c.URI+"]\n"+c.Text)
	}
	return strings.Join(parts, "\n"), m.Result.IsError
}
