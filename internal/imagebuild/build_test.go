package imagebuild

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// oneImage is a driver that keeps the image that is made last.
type oneImage struct{ made driver.ImageExtension }

func (o *oneImage) PullImage(context.Context, driver.ImagePull) (sandbox.Image, error) {
	return sandbox.Image{}, sandbox.Errorf(sandbox.NotFound, "there are no images")
}

func (o *oneImage) ExtendImage(_ context.Context, order driver.ImageExtension) (sandbox.Image, error) {
	o.made = order
	return sandbox.Image{Name: order.Name}, nil
}

// unpacked is an engine whose sandboxes take archives, and do no more.
type unpacked struct {
	Sandboxes // the rest is not called
	at        []string
}

func (u *unpacked) Create(context.Context, sandbox.Principal, sandbox.CreateRequest) (sandbox.Sandbox, error) {
	return sandbox.Sandbox{ID: "sbx"}, nil
}
func (u *unpacked) MarkLayer(context.Context, sandbox.Principal, string) error { return nil }
func (u *unpacked) Stop(context.Context, sandbox.Principal, string) error      { return nil }
func (u *unpacked) Layer(context.Context, sandbox.Principal, string) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader("")), nil
}

func (u *unpacked) Unpack(_ context.Context, _ sandbox.Principal, _ string, r io.Reader, to sandbox.UnpackTo) error {
	at := to.Path
	if to.File {
		at += " itself"
	}
	if to.Owner != "" {
		at += " of " + to.Owner
	}
	u.at = append(u.at, at)
	_, err := io.Copy(io.Discard, r)
	return err
}

// TestBuildCopy copies to places as Dockerfiles name them.
func TestBuildCopy(t *testing.T) {
	for line, want := range map[string]string{
		"COPY a b .":             "/w",
		"COPY a b ./":            "/w",
		"COPY a .":               "/w",
		"COPY a x":               "/w/x itself",
		"COPY a x/":              "/w/x",
		"COPY a /":               "/",
		"COPY a /x":              "/x itself",
		"COPY d x":               "/w/x",
		`COPY a "$NONE"`:         "/w",
		"COPY --chown=me\ta x":   "/w/x itself of me",
		"COPY\t--chown=me  a\tx": "/w/x itself of me",
		"COPY a b x":             "",
	} {
		dir, u := t.TempDir(), &unpacked{}
		for name, text := range map[string]string{"Dockerfile": "FROM scratch\nWORKDIR /w\n" + line, "a": "a", "b": "b", "d/e": "e"} {
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := (&Build{Sandboxes: u, Images: &oneImage{}, Dir: dir, Name: "x", Said: io.Discard}).Run(t.Context())
		if got := strings.Join(u.at[1:], ", "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: to %q, %v; want %q", line, got, err, want)
		}
	}
}

// TestBuildHostile builds Dockerfiles that are to use up the memory of whoever
// builds them, and needs no sandbox for it.
func TestBuildHostile(t *testing.T) {
	doubling := func(instruction string) string {
		var b strings.Builder
		b.WriteString("FROM scratch\nENV A=" + strings.Repeat("x", 1000) + "\n")
		for range 18 {
			fmt.Fprintln(&b, instruction)
		}
		return b.String()
	}
	for what, text := range map[string]string{
		"by lines": doubling("ENV A=$A$A"),
		"by names": doubling("ENV A=$A$A B=$A"),
		"labels":   doubling("ENV A=$A$A\nLABEL b=$A"),
		"ARG":      strings.ReplaceAll(doubling("ARG A=$A$A"), "ENV", "ARG"),
	} {
		dir, images := t.TempDir(), &oneImage{}
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b := Build{Images: images, Dir: dir, Name: "x", Said: io.Discard}
		if _, err := b.Run(t.Context()); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), "Dockerfile:") {
			t.Errorf("%s: %v; the last variable has %d bytes", what, err, len(strings.Join(images.made.Config.Env, "")))
		}
	}
}

// noShell is an engine whose sandboxes have no program.
type noShell struct{ unpacked }

func (noShell) Start(_ context.Context, _ sandbox.Principal, req sandbox.RunRequest) (sandbox.Run, error) {
	err := sandbox.Errorf(sandbox.Invalid, "%w %q in the sandbox", sandbox.ErrNoProgram, req.Argv[0])
	return sandbox.Run{}, sandbox.WithHint(err, "check the spelling")
}

// TestBuildHints checks what a build says to do where it misses something.
func TestBuildHints(t *testing.T) {
	for text, want := range map[string]string{
		"FROM host\n":                      "begin with another image; glovebox images load takes one from a file",
		"FROM scratch\nRUN /hello\n":       `the image has no shell: write the command as a list, like RUN ["/hello"]`,
		"FROM scratch\nRUN [\"/hello\"]\n": "check the spelling",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "Dockerfile"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := (&Build{Sandboxes: &noShell{}, Images: &oneImage{}, Dir: dir, Name: "x", Said: io.Discard}).Run(t.Context())
		if got := sandbox.HintOf(err); got != want {
			t.Errorf("%q: %v, hint %q, want %q", text, err, got, want)
		}
	}
}
