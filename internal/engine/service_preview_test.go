package engine

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/httpserver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestServicePreview opens the address of a service's port after hours, as the guide
// to previews has it: the sandbox would have ended after a minute without a service.
// A service that rests is woken. Beyond its time the address is refused, and a new
// one shows the same program.
func TestServicePreview(t *testing.T) {
	for _, wake := range []sandbox.WakePolicy{"", sandbox.WakeRequest} {
		t.Run("wake="+string(wake), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld()
				e := openWorld(t, w, t.TempDir(), func(o *Options) { o.MaxRunTimeout = sandbox.Forever })
				signer := httpserver.NewPortSigner(e, auth.Signer{Key: []byte("a key of links to ports, of 32 b")}, "http://127.0.0.1:8080", "")
				front, err := httpserver.New(httpserver.Options{
					Listen: "127.0.0.1:8080", Auth: noTokens{}, Log: slog.New(slog.DiscardHandler),
					Ports: struct {
						*Engine
						*httpserver.PortSigner
					}{e, signer}, PreviewDomain: signer.Domain(),
				})
				if err != nil {
					t.Fatal(err)
				}
				// show is a browser, to which the link's secret moves as a cookie.
				show := func(link string) (int, string) {
					r, rec := httptest.NewRequest("GET", link, nil), httptest.NewRecorder()
					front.Handler().ServeHTTP(rec, r)
					if rec.Code == http.StatusSeeOther {
						next := httptest.NewRequest("GET", "http://"+r.Host+rec.Header().Get("Location"), nil)
						for _, c := range rec.Result().Cookies() {
							next.AddCookie(c)
						}
						rec = httptest.NewRecorder()
						front.Handler().ServeHTTP(rec, next)
					}
					return rec.Code, rec.Body.String()
				}

				s := e.mustCreate(t, sandbox.CreateRequest{Limits: sandbox.Limits{Idle: time.Minute}})
				r := e.mustStart(t, sandbox.RunRequest{
					SandboxID: s.ID, Argv: []string{"sleep", "100h"},
					Service: &sandbox.ServiceRequest{Ready: &sandbox.ReadyCheck{Port: 8000}, Wake: wake},
				})
				if _, err := e.WaitReady(t.Context(), alice, r.ID); err != nil {
					t.Fatal(err)
				}
				link, until, err := signer.PortURL(t.Context(), alice, s.ID, webPort, 3*time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					time.Sleep(time.Hour)
					if w.only(t).isPaused() != (wake == sandbox.WakeRequest) {
						t.Errorf("rests: %v", w.only(t).isPaused())
					}
					if code, body := show(link); code != 200 || body != webPage {
						t.Errorf("the preview: %d %q", code, body)
					}
				}
				time.Sleep(time.Until(until) + time.Second)
				if code, body := show(link); code != 401 || body == webPage {
					t.Errorf("beyond its time: %d %q", code, body)
				}
				link, _, err = signer.PortURL(t.Context(), alice, s.ID, webPort, time.Hour)
				if err != nil {
					t.Fatal(err)
				}
				if code, body := show(link); code != 200 || body != webPage {
					t.Errorf("a new address: %d %q", code, body)
				}
			})
		})
	}
}

// noTokens knows no token.
type noTokens struct{}

func (noTokens) Verify(context.Context, string) (auth.Identity, error) {
	return auth.Identity{}, sandbox.Errorf(sandbox.Unauthenticated, "token: not valid")
}

func (noTokens) Gone(context.Context, auth.Identity) (bool, error) { return false, nil }
