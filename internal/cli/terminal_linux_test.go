package cli

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/png"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/app"
	"github.com/glovebox-dev/glovebox/internal/cli/console"
)

// onTerminal runs a command whose standard output and error are a terminal, and
// returns what the terminal gets, and the exit status.
func onTerminal(t *testing.T, env map[string]string, in string, args ...string) (string, int) {
	t.Helper()
	control, terminal := openTerminal(t)
	var got bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&got, control) // ends with an error when the terminal is closed
	}()
	all := map[string]string{"GLOVEBOX_DRIVER": "fake", "NO_COLOR": "1", "HOME": t.TempDir()}
	for name, value := range env {
		all[name] = value
	}
	p := &program{
		Streams:     Streams{In: strings.NewReader(in), Out: terminal, Err: terminal, Getenv: func(name string) string { return all[name] }},
		testDrivers: map[string]app.Maker{"fake": fakeDriver},
	}
	status := run(t.Context(), args, p)
	terminal.Close()
	<-read
	return strings.ReplaceAll(got.String(), "\r\n", "\n"), status
}

// stateDir returns a new state directory.
func stateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// aPNG returns the beginning of a PNG of 640 by 480 pixels.
func aPNG() []byte {
	return fmt.Appendf(nil, "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x02\x80\x00\x00\x01\xe0%s", make([]byte, 30))
}

// TestPlotsOnTerminal checks which terminals show a plot, after the program's
// output.
func TestPlotsOnTerminal(t *testing.T) {
	dir := stateDir(t)
	picture := base64.StdEncoding.EncodeToString(aPNG())
	program := `plots=${PYTHONPATH##*:}/shown; mkdir -p "$plots"; echo output
echo '{"image/png": "` + picture + `"}' >"$plots/1.json"`
	const unseen = "output\n1 plot was drawn: save it with --results DIR\n"
	kitty := "output\n\x1b_Ga=T,f=100,q=2,m=0;" + picture + "\x1b\\\n"
	inline := "output\n\x1b]1337;File=inline=1;size=54:" + picture + "\a\n"
	for _, c := range []struct {
		name string
		env  map[string]string
		want string
	}{
		{"unknown", map[string]string{"TERM": "xterm-256color"}, unseen},
		{"kitty", map[string]string{"TERM": "xterm-kitty"}, kitty},
		{"window of kitty", map[string]string{"TERM": "xterm", "KITTY_WINDOW_ID": "1"}, kitty},
		{"Ghostty", map[string]string{"TERM_PROGRAM": "ghostty"}, kitty},
		{"iTerm2", map[string]string{"TERM_PROGRAM": "iTerm.app"}, inline},
		{"iTerm2 elsewhere", map[string]string{"LC_TERMINAL": "iTerm2"}, inline},
		{"WezTerm", map[string]string{"TERM_PROGRAM": "WezTerm"}, inline},
		{"tmux in kitty", map[string]string{"TERM": "tmux-256color", "KITTY_WINDOW_ID": "1"}, unseen},
		{"screen in iTerm2", map[string]string{"TERM": "screen", "TERM_PROGRAM": "iTerm.app"}, unseen},
	} {
		c.env["GLOVEBOX_STATE_DIR"] = dir
		got, status := onTerminal(t, c.env, "", "run", "-l", "sh", "-c", program)
		if got != c.want || status != 0 {
			t.Errorf("%s: status %d, %q, want %q", c.name, status, got, c.want)
		}
	}
}

// TestSixelsOnTerminal has the sandbox turn a plot into sixels, for terminals that
// display them. A plot that it cannot decode is not shown.
func TestSixelsOnTerminal(t *testing.T) {
	var plot bytes.Buffer
	if err := png.Encode(&plot, image.NewGray(image.Rect(0, 0, 2000, 7))); err != nil {
		t.Fatal(err)
	}
	program := func(picture []byte) string {
		return `plots=${PYTHONPATH##*:}/shown; mkdir -p "$plots"; echo output
echo '{"image/png": "` + base64.StdEncoding.EncodeToString(picture) + `"}' >"$plots/1.json"`
	}
	const unseen = "output\n1 plot was drawn: save it with --results DIR\n"
	// The terminal of a test does not tell its width, so it is 80 columns of 8
	// pixels.
	const sixels = `output\n\x1bP[0-9;]*q"1;1;640;2#[-#0-9;!$?-~]*B\x1b\\\n`
	for _, c := range []struct {
		name    string
		env     map[string]string
		picture []byte
		want    string
	}{
		{"foot", map[string]string{"TERM": "foot"}, plot.Bytes(), sixels},
		{"Konsole", map[string]string{"TERM": "xterm-256color", "KONSOLE_VERSION": "240802"}, plot.Bytes(), sixels},
		{"by choice", map[string]string{"TERM": "xterm", "GLOVEBOX_PICTURES": "sixel"}, plot.Bytes(), sixels},
		{"not by choice", map[string]string{"TERM": "foot", "GLOVEBOX_PICTURES": "none"}, plot.Bytes(), unseen},
		{"foot in tmux", map[string]string{"TERM": "foot", "TMUX": "/tmp/tmux"}, plot.Bytes(), unseen},
		{"broken", map[string]string{"TERM": "foot"}, aPNG(), unseen},
	} {
		c.env["GLOVEBOX_STATE_DIR"] = stateDir(t)
		got, status := onTerminal(t, c.env, "", "run", "-l", "sh", "-c", program(c.picture))
		if !regexp.MustCompile("^"+c.want+"$").MatchString(got) || status != 0 {
			t.Errorf("%s: status %d, %q, want %q", c.name, status, got, c.want)
		}
	}
}

// TestFilesOnTerminal checks the line with changed files, which only a person
// gets.
func TestFilesOnTerminal(t *testing.T) {
	env := map[string]string{"GLOVEBOX_STATE_DIR": stateDir(t)}
	const first, second = "echo a >data.csv; echo b >old.txt", "echo cc >result.csv; echo new data >data.csv; rm old.txt; exit 3"
	for _, c := range []struct {
		program, want string
		status        int
	}{
		{first, "files: +data.csv +old.txt\n", 0},
		{second, "files: +result.csv ~data.csv -old.txt\n", 3},
		{"cat data.csv", "new data\n", 0},
	} {
		got, status := onTerminal(t, env, "", "run", "--workspace", "w", "-l", "sh", "-c", c.program)
		if got != c.want || status != c.status {
			t.Errorf("%s: status %d, %q, want %q", c.program, status, got, c.want)
		}
	}
}

// TestLogsOnTerminal checks that the recorded output of a program does not command
// the terminal. Each run writes to one stream: the order of two is not defined.
func TestLogsOnTerminal(t *testing.T) {
	for _, c := range []struct{ name, program, live, log string }{
		{"stdout", `printf '\033[31mred\n'`, "\x1b[31mred\n", "^[[31mred\n"},
		{"stderr", `printf 'no \033c\302' >&2`, "no \x1bc\xc2", "no ^[c\\xc2"},
	} {
		env := map[string]string{"GLOVEBOX_STATE_DIR": stateDir(t)}
		live, status := onTerminal(t, env, "", "run", "-l", "sh", "-c", c.program)
		if live != c.live || status != 0 {
			t.Errorf("%s: the run: status %d, %q, want %q", c.name, status, live, c.live)
		}
		list, _ := onTerminal(t, env, "", "runs")
		id := regexp.MustCompile("run_[a-z2-7]{26}").FindString(list)
		got, status := onTerminal(t, env, "", "logs", "--details=false", id)
		if got != c.log || status != 0 {
			t.Errorf("%s: its log: status %d, %q, want %q", c.name, status, got, c.log)
		}
	}
}

// TestExportOnTerminal checks that a terminal gets no archive.
func TestExportOnTerminal(t *testing.T) {
	env := map[string]string{"GLOVEBOX_STATE_DIR": stateDir(t)}
	onTerminal(t, env, "", "run", "--workspace", "w", "-l", "sh", "-c", "echo a >f")
	got, status := onTerminal(t, env, "", "workspace", "export", "w")
	want := "error: standard output is a terminal, and the archive is binary\nhint: write it to a file: glovebox workspace export w > w.tar\n"
	if got != want || status != console.StatusUsage {
		t.Errorf("status %d, %q, want %q", status, got, want)
	}
}
