package kernels

import (
	"bytes"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

const testKey = "0123456789abcdef0123456789abcdef"

func TestAssembler(t *testing.T) {
	a := Assembler{Key: testKey}
	ev, ask, err := a.Add([]byte(testKey + `?{"ev":"result","id":3,"main":true,"data":{"text/plain":"2"}}`))
	if err != nil || !ask || ev.ID != 3 || !ev.Main || string(ev.Data["text/plain"]) != `"2"` {
		t.Fatalf("got %+v, %v, %v", ev, ask, err)
	}
	if ev, _, err := a.Add([]byte(testKey + `+{"ev":`)); ev != nil || err != nil {
		t.Fatalf("a piece gave %v, %v", ev, err)
	}
	// What has no key is not there.
	for _, junk := range []string{"", "x", strings.Repeat("x", 100), testKey, testKey[1:] + `0.{"ev":"end"}`} {
		if _, _, err := a.Add([]byte(junk)); !errors.Is(err, ErrForeign) {
			t.Errorf("%q gave %v", junk, err)
		}
	}
	ev, _, err = a.Add([]byte(testKey + `."end","id":4,"exit_code":2}`))
	if err != nil || ev.Ev != "end" || ev.Status != "exit" || *ev.ExitCode != 2 {
		t.Fatalf("got %+v, %v", ev, err)
	}
	for _, bad := range []string{".", ".{}", ".[]", "x{}", ".null", `.{"ev":3}`, `.{"ev":"end","id":"3"}`} {
		if ev, _, err := a.Add([]byte(testKey + bad)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q gave %v, %v", bad, ev, err)
		}
	}
	if _, _, err := a.Add([]byte(testKey + `.{"ev":"pong"}`)); err != nil {
		t.Errorf("a good message behind bad ones: %v", err)
	}
}

func TestAssemblerIsBounded(t *testing.T) {
	a := Assembler{Key: testKey}
	piece := []byte(testKey + "+" + strings.Repeat("x", MaxMessage))
	refused := false
	for range 2 * MaxEvent / MaxMessage {
		if _, _, err := a.Add(piece); err != nil {
			refused = true
		}
		if len(a.buf) > MaxEvent {
			t.Fatalf("holds %d bytes", len(a.buf))
		}
	}
	if !refused {
		t.Error("an endless event was not refused")
	}
	for range maxPieces + 1 {
		_, _, _ = a.Add([]byte(testKey + "+"))
	}
	if a.pieces > maxPieces {
		t.Errorf("%d pieces", a.pieces)
	}
}

func FuzzAssembler(f *testing.F) {
	f.Add([]byte(`.{"ev":"end","id":1,"status":"ok","exit_code":0}`), []byte("?{}"))
	f.Add([]byte(`+{"ev"`), []byte(`.:"result","data":{"a/b":[1]}}`))
	f.Fuzz(func(t *testing.T, one, two []byte) {
		a := Assembler{Key: testKey}
		for _, m := range [][]byte{one, two} {
			ev, _, err := a.Add(append([]byte(testKey), m...))
			if err == nil && ev != nil && ev.Ev == "" {
				t.Errorf("%q gave an event without a kind", m)
			}
			if ev != nil && ev.Ev == "end" && ev.Status == "" {
				t.Errorf("%q gave an end without a status", m)
			}
		}
	})
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{"Python3": "python", "JS": "javascript", "ts": "typescript", "bash": "bash", "sh": "sh"} {
		if p, ok := Find(name); !ok || p.Language != want || p.Name != want {
			t.Errorf("%s gave %+v, %v", name, p, ok)
		}
	}
	if p, ok := Find("IPython"); !ok || p.Language != "python" || p.Name != "ipython" {
		t.Errorf("IPython gave %+v, %v", p, ok)
	}
	if p, _ := Find("python"); bytes.Contains(p.Start("python3", Init{Key: testKey}), []byte(`"ipython":[`)) {
		t.Error("a kernel of Python is told of IPython")
	}
	if _, ok := Find("cobol"); ok {
		t.Error("there is no kernel of COBOL")
	}
}

// TestShellScripts has each shell read what it would be sent.
func TestShellScripts(t *testing.T) {
	for _, language := range []string{"bash", "sh"} {
		p, _ := Find(language)
		script := string(p.Start("/bin/"+language, Init{Key: testKey})) +
			string(p.Run(Run{ID: 1, Env: map[string]string{"A": "it's", "B": "$x`y`\n"}, Stdin: true})) +
			string(p.Restart("/bin/"+language, testKey))
		for _, word := range []string{"F_", "#bash", "#sh", "#first", "INTERPRETER", "KEY"} {
			if strings.Contains(script, word) {
				t.Errorf("%s: %q is left in %s", language, word, script)
			}
		}
		cmd := exec.Command(language, "-n")
		cmd.Stdin = strings.NewReader(script)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s\n%s", language, err, out, script)
		}
	}
}

func TestValidEnvName(t *testing.T) {
	for _, good := range []string{"A", "_a9"} {
		if !ValidEnvName(good) {
			t.Errorf("%q is refused", good)
		}
	}
	for _, bad := range []string{"", "9A", "A-B", "A=B", "A;ls", "é"} {
		if ValidEnvName(bad) {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestPieces(t *testing.T) {
	for _, source := range []string{pythonKernel, pythonRich} {
		got := pieces(source)
		if strings.Join(got, "") != source {
			t.Error("the pieces are not the whole")
		}
		for i, p := range got {
			if last := i == len(got)-1; !last && (len(p) < pieceSize || !strings.HasSuffix(p, "\n\n\n")) {
				t.Errorf("piece %d has %d bytes and ends in %q", i, len(p), p[len(p)-10:])
			}
			// One that is much larger takes the memory that pieces save.
			if len(p) > 2*pieceSize {
				t.Errorf("piece %d has %d bytes: %.60q", i, len(p), p)
			}
		}
	}
	for source, want := range map[string]int{"": 1, "short": 1, strings.Repeat("x", 3*pieceSize): 1, strings.Repeat("x", pieceSize) + "\n\n\ny": 2} {
		if got := pieces(source); len(got) != want || strings.Join(got, "") != source {
			t.Errorf("%d bytes are %d pieces, want %d", len(source), len(got), want)
		}
	}
}
