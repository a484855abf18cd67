package guestapi

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// TestPackChangedEarlier: a guest that does not know the request packs nothing, which must
// not be taken for an archive without files.
func TestPackChangedEarlier(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+PathPack, func(http.ResponseWriter, *http.Request) { t.Error("the client asks for other files") })
	srv := httptest.NewUnstartedServer(mux)
	srv.Config.Protocols = new(http.Protocols)
	srv.Config.Protocols.SetUnencryptedHTTP2(true)
	srv.Start()
	defer srv.Close()
	c := NewClient(func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", srv.Listener.Addr().String())
	})
	defer c.Close()
	if _, err := c.PackChanged(t.Context()); sandbox.KindOf(err) != sandbox.Unsupported || sandbox.HintOf(err) == "" {
		t.Errorf("%v, want it refused as unsupported with a hint", err)
	}
}
