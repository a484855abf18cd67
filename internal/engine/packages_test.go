package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

func TestInstall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		e := openWorld(t, w, t.TempDir(), func(o *Options) {
			o.Indexes, o.MaxNetwork = map[string]string{"npm": "file:///data/registry"}, "*.debian.org"
		})
		s := e.mustCreate(t, sandbox.CreateRequest{})
		for _, c := range []struct {
			req        sandbox.PackagesRequest
			kind       sandbox.Kind
			text, hint string
		}{
			{sandbox.PackagesRequest{Packages: []string{"numpy"}}, sandbox.Unsupported, "pip must reach pypi.org:443,files.pythonhosted.org:443, and the sandbox's network is none", "--allow-network pypi.org:443,files.pythonhosted.org:443, then make a new sandbox"},
			{sandbox.PackagesRequest{Packages: []string{"numpy"}, SandboxID: s.ID}, sandbox.Unsupported, "network", "new sandbox"},
			{sandbox.PackagesRequest{Packages: []string{"jq"}, Language: "apt"}, sandbox.Unsupported, "apt must reach deb.debian.org", `make a new sandbox with network "deb.debian.org,security.debian.org"`},
			{sandbox.PackagesRequest{Packages: []string{"x"}, Language: "perl"}, sandbox.Unsupported, "perl", "run_command"},
			{sandbox.PackagesRequest{Packages: []string{"x"}, Language: "nothing"}, sandbox.Invalid, "language", ""},
			{sandbox.PackagesRequest{Packages: []string{"-r"}}, sandbox.Invalid, "packages", ""},
			{sandbox.PackagesRequest{}, sandbox.Invalid, "packages", ""},
			{sandbox.PackagesRequest{Packages: []string{"x"}, SandboxID: sandbox.NewID()}, sandbox.NotFound, "sandbox_id", ""},
		} {
			_, err := e.Install(t.Context(), alice, c.req)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), c.text) || !strings.Contains(sandbox.HintOf(err), c.hint) {
				t.Errorf("%+v: %v (%s)", c.req, err, sandbox.HintOf(err))
			}
		}
		if len(w.refs()) != 1 {
			t.Errorf("what was refused made a sandbox: %v", w.refs())
		}
		// A file needs no network, and neither does an index that is one.
		for language, name := range map[string]string{"python": "/data/a.whl", "js": "lodash"} {
			r, err := e.Install(t.Context(), alice, sandbox.PackagesRequest{SandboxID: s.ID, Language: language, Packages: []string{name}})
			if err != nil {
				t.Fatal(err)
			}
			rec, err := e.store.Run(t.Context(), r.ID)
			if err != nil || rec.Timeout != installTimeout {
				t.Errorf("%+v, %v", rec, err)
			}
			checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		}
		// Where Node is not, Bun does it.
		w.only(t).lacks = "node"
		r, err := e.Install(t.Context(), alice, sandbox.PackagesRequest{SandboxID: s.ID, Language: "js", Packages: []string{"lodash"}})
		if err != nil {
			t.Fatal(err)
		}
		checkVerdict(t, e.mustWait(t, r.ID), sandbox.OK, "")
		w.only(t).lacks = "python3"
		_, err = e.Install(t.Context(), alice, sandbox.PackagesRequest{SandboxID: s.ID, Packages: []string{"/data/a.whl"}, Timeout: time.Minute})
		if !errors.Is(err, sandbox.Unsupported) || !strings.Contains(sandbox.HintOf(err), "python3-pip") {
			t.Errorf("without Python: %v (%s)", err, sandbox.HintOf(err))
		}
	})
}
