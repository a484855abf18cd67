//go:build linux && !nogvisor

package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A toolSession makes the calls of a page's blocks of tools, each a line of a
// tool's name and its arguments. All blocks of a page share one session.
type toolSession struct {
	client *analyst
	// dir is the allowed directory. Pages call it /home/ada.
	dir string
	// sandbox is the ID of the last sandbox in a result. In a page's
	// arguments, sbx_… stands for it.
	sandbox string
	// raw is the text of the last result, with its IDs and addresses.
	raw string
}

// startTools starts the program as an MCP client does, with the page's
// directory as an allowed one.
func startTools(t *testing.T, binary, dir string, env []string) *toolSession {
	t.Helper()
	cmd := exec.Command(binary, "mcp", "--allow-dir", dir)
	cmd.Dir, cmd.Env = dir, env
	return &toolSession{client: startStdio(t, cmd), dir: dir}
}

var (
	sandboxID = regexp.MustCompile(`sbx_[a-z0-9]{26}`)
	// varying are the parts of results that differ from run to run, each with
	// the text that stands for it in the documentation.
	varying = []struct {
		found *regexp.Regexp
		shown string
	}{
		{regexp.MustCompile(`(sbx_?|run_|ctx_|snap_)[a-z0-9]{26}`), "$1…"},
		{regexp.MustCompile(`\b\d+ ms\b`), "… ms"},
		{regexp.MustCompile(`(\.localhost):\d+/\S*`), "$1:…"},
		{regexp.MustCompile(`\b20\d\d-\d\d-\d\dT[0-9:.]+Z`), "20…Z"},
	}
)

// withoutVariation replaces the parts of a text that differ from run to run.
func withoutVariation(text string) string {
	for _, v := range varying {
		text = v.found.ReplaceAllString(text, v.shown)
	}
	return text
}

// run makes the calls of a block and returns the texts of their results.
func (s *toolSession) run(calls string) (string, error) {
	var out strings.Builder
	for line := range strings.Lines(calls) {
		name, args, _ := strings.Cut(strings.TrimSpace(line), " ")
		result := s.client.call("tools/call", map[string]any{
			"name":      name,
			"arguments": json.RawMessage(strings.NewReplacer("sbx_…", s.sandbox, "/home/ada", s.dir).Replace(args)),
		})
		var answer toolAnswer
		if err := json.Unmarshal(result, &answer); err != nil {
			return out.String(), fmt.Errorf("%s: %w", name, err)
		}
		s.raw = strings.ReplaceAll(strings.TrimRight(answer.text(), "\n")+"\n", s.dir, "/home/ada")
		if id := sandboxID.FindString(s.raw); id != "" {
			s.sandbox = id
		}
		out.WriteString(s.raw)
		if answer.IsError {
			return out.String(), fmt.Errorf("%s failed", name)
		}
	}
	return out.String(), nil
}

// check runs a block and compares the results with the documented output.
func (s *toolSession) check(t *testing.T, e example) {
	t.Helper()
	got, err := s.run(e.text)
	if err != nil {
		t.Errorf("%v\n%s\n%s", err, e.text, got)
	} else if d := cmp.Diff(withoutVariation(e.output), withoutVariation(got)); e.has && d != "" {
		t.Errorf("results (-documented +got):\n%s\n%s", e.text, d)
	}
}

// TestPreviewGuideOutlivesTimeout starts the program of the preview guide, and
// fetches its page after the default timeout of a run.
func TestPreviewGuideOutlivesTimeout(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/guides/preview.md"]
	binary := os.Getenv("GLOVEBOX_TEST_BINARY")
	if binary == "" {
		binary = build(t)
	}
	needGvisor(t, binary)
	binary, err := filepath.Abs(binary)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	s := startTools(t, binary, dir, []string{"HOME=" + dir, "PATH=/usr/local/bin:/usr/bin:/bin", "GLOVEBOX_DRIVER=gvisor"})
	blocks := 0
	for _, e := range examples(page) {
		if e.info == "mcp" {
			s.check(t, e)
			blocks++
		}
	}
	link := regexp.MustCompile(`http://\S+`).FindString(s.raw)
	if blocks == 0 || link == "" {
		t.Fatalf("the guide has %d blocks of calls, and the last gives the link %q", blocks, link)
	}
	time.Sleep(35 * time.Second) // more than run.timeout, 30 s
	// Browsers resolve names below localhost themselves; Go's resolver does not.
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			_, port, err := net.SplitHostPort(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, network, net.JoinHostPort("127.0.0.1", port))
		},
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(link)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK || !strings.Contains(string(body), "Directory listing") {
		t.Errorf("the page after 35 s: %s\n%s", resp.Status, body)
	}
}
