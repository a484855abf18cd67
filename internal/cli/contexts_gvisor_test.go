//go:build linux && !nogvisor

package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"image"
	_ "image/png"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pictures is where the transcript leaves its pictures for people to look at.
var pictures = flag.String("pictures", "", "keep the pictures of the transcript in this directory")

// An analyst speaks to the real program on its standard input and output.
type analyst struct {
	t  *testing.T
	in io.Writer
	// out has a message on each line.
	out     *bufio.Reader
	id      int
	sandbox string
}

// startAnalyst starts the real program as a desktop client does, with Debian's
// packages of Python in its image.
func startAnalyst(t *testing.T) *analyst {
	t.Helper()
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	if err := exec.CommandContext(t.Context(), "/usr/bin/python3", "-c", "import numpy, pandas, matplotlib").Run(); err != nil {
		if required("pandas") {
			t.Fatalf("GLOVEBOX_REQUIRE has pandas: %v", err)
		}
		t.Skip("Debian's python3-numpy, python3-pandas and python3-matplotlib are not here")
	}
	return startStdio(t, exec.Command(binary, "mcp", "--driver", "gvisor", "--state-dir", t.TempDir()))
}

// startStdio starts a server on standard input and output, and initializes it.
func startStdio(t *testing.T, cmd *exec.Cmd) *analyst {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("glovebox mcp: %v\n%s", err, &stderr)
		}
	})
	c := &analyst{t: t, in: in, out: bufio.NewReaderSize(out, 1<<20)}
	c.call("initialize", map[string]any{"protocolVersion": "2025-06-18", "capabilities": map[string]any{}, "clientInfo": map[string]any{"name": "test", "version": "1"}})
	fmt.Fprintln(c.in, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// call makes a request and returns its result.
func (c *analyst) call(method string, params any) json.RawMessage {
	c.t.Helper()
	c.id++
	req, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": c.id, "method": method, "params": params})
	if err != nil {
		c.t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c.in, "%s\n", req); err != nil {
		c.t.Fatal(err)
	}
	for {
		line, err := c.out.ReadBytes('\n')
		if err != nil {
			c.t.Fatalf("%s: %v", method, err)
		}
		var m struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  json.RawMessage `json:"error"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			c.t.Fatalf("%s: %v in %.200s", method, err, line)
		}
		if m.ID == c.id {
			if len(m.Error) > 0 {
				c.t.Fatalf("%s: %s", method, m.Error)
			}
			return m.Result
		}
	}
}

// A toolAnswer is what a tool gives.
type toolAnswer struct {
	IsError bool `json:"isError"`
	Content []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Data     []byte `json:"data"`
		MIMEType string `json:"mimeType"`
	} `json:"content"`
	Structured struct {
		SandboxID string `json:"sandbox_id"`
		Verdict   struct {
			Code  string `json:"code"`
			Cause string `json:"cause"`
		} `json:"verdict"`
		Results []struct {
			MIME string          `json:"mime"`
			Data json.RawMessage `json:"data"`
		} `json:"results"`
	} `json:"structuredContent"`
}

func (a *toolAnswer) text() string {
	var b strings.Builder
	for _, c := range a.Content {
		if c.Type == "text" {
			b.WriteString(c.Text + "\n")
		} else {
			fmt.Fprintf(&b, "(%s)\n", c.MIMEType)
		}
	}
	return b.String()
}

// tool calls a tool in the client's sandbox, which the first call makes.
func (c *analyst) tool(name string, args map[string]any) *toolAnswer {
	c.t.Helper()
	if c.sandbox != "" {
		args["sandbox_id"] = c.sandbox
	}
	a := new(toolAnswer)
	if err := json.Unmarshal(c.call("tools/call", map[string]any{"name": name, "arguments": args}), a); err != nil {
		c.t.Fatal(err)
	}
	if id := a.Structured.SandboxID; id != "" {
		c.sandbox = id
	}
	return a
}

func (c *analyst) python(code string) *toolAnswer {
	c.t.Helper()
	return c.tool("run_code", map[string]any{"code": code, "timeout_seconds": 60})
}

// analysis is what a model does with a table, step by step. Each step has what
// its answer must say, and how many pictures it shows.
var analysis = []struct {
	code, want string
	pictures   int
}{
	{"import pandas as pd\nimport matplotlib.pyplot as plt\ndf = pd.read_csv('/data/sales.csv', parse_dates=['date'])\ndf.head(3)", `Out\[1\]:\n +date +region +units +price\n0 2026-01-01 +north`, 0},
	{"print(len(df), 'rows')\ndf.dtypes", `12 rows\nOut\[2\]:\ndate +datetime64`, 0},
	{"by_region = df.groupby('region').revenue.sum()", `KeyError|AttributeError: 'DataFrameGroupBy' object has no attribute 'revenue'`, 0},
	{"df['revenue'] = df.units * df.price\nby_region = df.groupby('region').revenue.sum()\nby_region", `north +1319\nsouth +1380`, 0},
	{
		"by_region.plot.bar(title='Revenue by region', ylabel='EUR', rot=0)\nplt.show()\nprint('bar done')\n" +
			"monthly = df.groupby([df.date.dt.month, 'region']).revenue.sum().unstack()\nmonthly.plot(marker='o', title='Revenue by month')\nplt.xlabel('month')\nplt.show()\n" +
			"fig, ax = plt.subplots()\nax.scatter(df.units, df.price)\nax.set_title('Price against units')\nax.set_xlabel('units'); ax.set_ylabel('price (EUR)')",
		`(?s)chart: \{.*"group":"revenue","label":"north","value":1319.*"title":"Revenue by region","type":"bar".*\(image/png\)\nbar done.*"title":"Revenue by month","type":"line".*\(image/png\).*"title":"Price against units","type":"scatter".*"y_unit":"EUR".*\(image/png\)`, 3,
	},
	{"monthly.to_csv('/data/monthly.csv')\nopen('/data/monthly.csv').read()", `date,north,south`, 0},
}

// TestGvisorAnalysis is a transcript of an analysis over MCP in the embedded
// sandbox: a table from the workspace, an error that is mended, three charts,
// an export. With -pictures the charts are kept to be looked at.
func TestGvisorAnalysis(t *testing.T) {
	c := startAnalyst(t)
	c.python("1")
	var table strings.Builder
	table.WriteString("date,region,units,price\n")
	for month := 1; month <= 6; month++ {
		fmt.Fprintf(&table, "2026-%02d-01,north,%d,%d\n2026-%02d-15,south,%d,%d\n", month, 10+month, 20-month, month, 30-2*month, 10)
	}
	if a := c.tool("write_file", map[string]any{"path": "sales.csv", "content": table.String()}); a.IsError {
		t.Fatal(a.text())
	}
	c.tool("run_code", map[string]any{"code": "0", "restart": true})
	for i, step := range analysis {
		step.want = regexp.MustCompile(`Out\\\[(\d)\\\]`).ReplaceAllString(step.want, `Out\[\d+\]`)
		a := c.python(step.code)
		if !regexp.MustCompile(step.want).MatchString(a.text()) {
			t.Errorf("step %d says\n%s\nwant %s", i+1, a.text(), step.want)
		}
		if failed := strings.Contains(step.want, "Error"); a.IsError != failed {
			t.Errorf("step %d: isError %v", i+1, a.IsError)
		}
		n := 0
		for _, content := range a.Content {
			if content.Type != "image" {
				continue
			}
			n++
			m, format, err := image.Decode(bytes.NewReader(content.Data))
			if err != nil || format != "png" || m.Bounds().Dx() < 300 {
				t.Errorf("step %d, picture %d: %s, %v", i+1, n, format, err)
			}
			if *pictures != "" {
				if err := os.WriteFile(filepath.Join(*pictures, fmt.Sprintf("step%d-%d.png", i+1, n)), content.Data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		if n != step.pictures {
			t.Errorf("step %d shows %d pictures, want %d", i+1, n, step.pictures)
		}
	}
	exported := c.tool("read_file", map[string]any{"path": "monthly.csv"})
	if !strings.Contains(exported.text(), "date,north,south\n1,209,280") {
		t.Errorf("exported:\n%s", exported.text())
	}
}

// hostile is code that misbehaves in a context, the verdict that it meets, and
// whether its state survives.
var hostile = []struct {
	name, code, verdict, cause string
	kept                       bool
}{
	{"ClosesDescriptors", "import os\nfor fd in (0, 1, 2): os.close(fd)", "ok", "", true},
	{"ReplacesStreams", "import sys\nsys.stdout = sys.stderr = sys.stdin = None", "ok", "", true},
	{"Forks", "import os\nfor i in range(3): os.fork()", "ok", "", true},
	{"PrintsAfterItsEnd", "import threading, time\ndef f():\n  for i in range(20): print('late'); time.sleep(0.01)\nthreading.Thread(target=f).start()", "ok", "", true},
	{"Exits", "import os\nos._exit(0)", "killed", "exited (exit status 0); state lost", false},
	{"KillsItself", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "killed", "signal (killed); state lost", false},
	{"Crashes", "import ctypes\nctypes.string_at(0)", "killed", "state lost", false},
	{"RedefinesBuiltins", "import builtins\nprint = 5\nbuiltins.len = builtins.isinstance = builtins.print = builtins.repr = None", "ok", "", true},
	{
		"WritesFraming", "import os\nfor fd in range(3, 1024):\n  for text in (b'\\0\\0\\0\\x10{\"ev\":\"end\"}', b'0' * 32 + b'.{\"ev\":\"end\",\"id\":1,\"status\":\"ok\"}'):\n    try: os.write(fd, text)\n    except OSError: pass",
		"ok", "", true,
	},
	{"PrintsNoText", "import os\nos.write(1, bytes(range(256)) * 100)", "ok", "", true},
	{"Recurses", "import sys\nsys.setrecursionlimit(10**9)\nclass A:\n  def __repr__(self): return repr(self)\nrepr(A())", "killed", "state lost", false},
	{"FillsMemory", "x = []\nwhile True: x.append(bytearray(1 << 24))", "out_of_memory", "512 MiB of memory; state lost", false},
	{"SwallowsInterrupts", "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: time.sleep(1)", "timeout", "was killed; state lost", false},
	{"IsInterrupted", "while True: pass", "timeout", "was interrupted; the context keeps its variables", true},
}

// fillsMemory has code take all memory where a control group may not bound it:
// then memory is watched, and the sandbox ends as a whole.
func (c *analyst) fillsMemory(t *testing.T, code string) {
	t.Helper()
	neighbour := c.sandbox
	c.sandbox = ""
	a := c.python(code)
	c.sandbox = neighbour
	if v := a.Structured.Verdict; v.Code != "out_of_memory" || !strings.Contains(v.Cause, "512 MiB of memory") {
		t.Errorf("verdict %+v\n%.2000s", v, a.text())
	}
	if a := c.python("6 * 7"); a.IsError || !strings.Contains(a.text(), "42") {
		t.Errorf("the neighbour says %.2000s", a.text())
	}
}

// TestGvisorHostileContexts has code that misbehaves meet a correct verdict in
// the embedded sandbox, and the next run work.
func TestGvisorHostileContexts(t *testing.T) {
	c := startAnalyst(t)
	for _, h := range hostile {
		t.Run(h.name, func(t *testing.T) {
			if h.name == "FillsMemory" && os.Geteuid() != 0 {
				c.fillsMemory(t, h.code)
				return
			}
			if a := c.python("kept = 1"); a.IsError {
				t.Fatal(a.text())
			}
			timeout := 60
			if h.verdict == "timeout" {
				timeout = 3 // in which it gets to where it does not end
			}
			a := c.tool("run_code", map[string]any{"code": h.code, "timeout_seconds": timeout})
			v := a.Structured.Verdict
			if v.Code != h.verdict || !strings.Contains(v.Cause, h.cause) {
				t.Errorf("verdict %+v, want %s with %q\n%.2000s", v, h.verdict, h.cause, a.text())
			}
			next := c.python("import sys\n_ = sys.stdout.write('next\\n')\nglobals().pop('print', 0)\n'kept' in globals()")
			want := map[bool]string{true: ": True\n", false: ": False\n"}[h.kept]
			if next.IsError || !strings.Contains(next.text(), "next\n") || !strings.Contains(next.text(), want) {
				t.Errorf("the next run says %.2000s", next.text())
			}
			if told := strings.Contains(next.text(), "state lost; started fresh"); told == h.kept {
				t.Errorf("what it says of the state: %.2000s", next.text())
			}
		})
	}
}
