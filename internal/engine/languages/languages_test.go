package languages

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/engine/guestlink"
	"github.com/glovebox-dev/glovebox/internal/guestapi"
	"github.com/glovebox-dev/glovebox/internal/interpreter"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// fakeGuest answers the engine's own programs. answer returns the output of one,
// or the error of its start.
type fakeGuest struct {
	guestlink.Guest // any other call panics
	answer          func(argv []string) (string, error)
}

func (g fakeGuest) Start(_ context.Context, req *guestapi.StartRequest, _ guestapi.StartOptions) (guestlink.Events, error) {
	out, err := g.answer(append([]string{req.Process.Cmd}, req.Process.Args...))
	if err != nil {
		return nil, err
	}
	return &fakeStream{events: []guestapi.Event{
		{Data: &guestapi.DataEvent{Stdout: []byte(out)}}, {End: &guestapi.End{Status: guestapi.EndOK, ExitCode: new(0)}},
	}}, nil
}

type fakeStream struct{ events []guestapi.Event }

func (s *fakeStream) Next() (*guestapi.Event, error) {
	ev := s.events[0]
	s.events = s.events[1:]
	return &ev, nil
}

func (*fakeStream) Close() error { return nil }

var errMissing = sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "it is missing"), "get it")

func missing(func(string) error) error { return errMissing }

// python is the table of one language.
func python(t *testing.T) interpreter.Table {
	t.Helper()
	r, err := interpreter.Runners().Find("python")
	if err != nil {
		t.Fatal(err)
	}
	return interpreter.Table{r}
}

// TestList lists an installed language with its packages, and a missing language.
// The output of the guest is untrusted.
func TestList(t *testing.T) {
	notFound := sandbox.Errorf(sandbox.NotFound, "no such program")
	for _, c := range []struct {
		name, versions, packages string
		want                     sandbox.Language
	}{
		{"Installed", "\x1e0\x1f/usr/bin/python3\x1fPython 3.13.1\n", "numpy 2.1.0\nobscure 1.0\n",
			sandbox.Language{Program: "/usr/bin/python3", Version: "3.13.1", Packages: []sandbox.Package{{Name: "numpy", Version: "2.1.0"}}}},
		{"Missing", "", "", sandbox.Language{Missing: "get it"}},
		{"Invalid", "\x1e99\x1f/x\x1f1.0\n\x1e-1\x1f/x\x1f1.0\n\x1ex\x1f/x\x1f1.0\n\x1e0\x1f/x\n", "", sandbox.Language{Missing: "get it"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := fakeGuest{answer: func(argv []string) (string, error) {
				switch argv[0] {
				case "/bin/sh":
					return c.versions, nil
				case "python3":
					return c.packages, nil
				}
				return "", notFound
			}}
			list, err := List(t.Context(), g, python(t), missing)
			if err != nil || len(list) != 1 || list[0].Name != "python" || list[0].Installer != "pip" {
				t.Fatalf("%+v, %v", list, err)
			}
			got := sandbox.Language{Program: list[0].Program, Version: list[0].Version, Packages: list[0].Packages, Missing: list[0].Missing}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
	broken := sandbox.Errorf(sandbox.Unavailable, "no answer")
	g := fakeGuest{answer: func([]string) (string, error) { return "", broken }}
	if _, err := List(t.Context(), g, python(t), missing); !errors.Is(err, broken) {
		t.Errorf("without an answer: %v", err)
	}
}

func TestWithImages(t *testing.T) {
	list := []sandbox.Language{{Name: "python", Program: "/usr/bin/python3"}, {Name: "ruby", Missing: "get it"}}
	images := map[string]string{"python": "py", "ruby": "rb", "zig": "own", "ada": "gnat"}
	want := []sandbox.Language{
		{Name: "python", Program: "/usr/bin/python3"},
		{Name: "ruby", Missing: "use the image rb, which has it"},
		{Name: "ada", Missing: "run it in a new sandbox, which has the image gnat"},
		{Name: "zig", Program: "image own"},
	}
	if diff := cmp.Diff(want, WithImages(list, "own", images)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if len(images) != 4 {
		t.Errorf("the caller's images are now %v", images)
	}
}

func TestInstaller(t *testing.T) {
	runners := interpreter.Runners()
	for name, want := range map[string]string{"": "pip", "python": "pip", "apt": "apt", "js": "npm"} {
		if i, err := Installer(name, runners); err != nil || i.Name != want {
			t.Errorf("%q: %q, %v; want %q", name, i.Name, err, want)
		}
	}
	for name, kind := range map[string]sandbox.Kind{"perl": sandbox.Unsupported, "nothing": sandbox.Invalid} {
		if _, err := Installer(name, runners); !errors.Is(err, kind) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReaches(t *testing.T) {
	pip, err := Installer("pip", interpreter.Runners())
	if err != nil {
		t.Fatal(err)
	}
	const all = "pypi.org,files.pythonhosted.org"
	for _, c := range []struct {
		name          string
		network, most sandbox.Network
		hint          string // "" if the index is reached
	}{
		{"Reached", all, all, ""},
		{"NewSandbox", "none", all, "make a new sandbox with network"},
		{"Operator", "none", "none", "--allow-network pypi.org"},
		{"InvalidNetwork", "no network", all, ""}, // the creation of the sandbox reports it
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Reaches(pip, "", []string{"numpy"}, c.network, c.most)
			if (err == nil) != (c.hint == "") || err != nil && !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), c.hint) {
				t.Errorf("%v (%s)", err, sandbox.HintOf(err))
			}
		})
	}
}
