package install

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Bounds of one request to a server, which may not be a Glovebox.
const (
	answerTime = 15 * time.Second
	answerSize = 64 << 10
)

// hello is the first message of an MCP client. Every version of MCP has it.
const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18",` +
	`"capabilities":{},"clientInfo":{"name":"glovebox-install","version":"1"}}}`

// metadataPath is the well-known path at which a server describes itself (RFC 9728).
const metadataPath = "/.well-known/oauth-protected-resource"

// A host is a server that was asked without a token.
type host struct {
	// wantsToken is true if the server refuses requests without a token. A proxy in
	// front of it may add one.
	wantsToken bool
	// signIn is true if people can sign in with their client.
	signIn bool
}

// look asks the server at address, without a token. The error is of kind Unavailable
// if the server does not answer, and Invalid if it is no Glovebox.
func look(ctx context.Context, address string) (host, error) {
	res, text, err := exchange(ctx, http.MethodPost, address, "", hello)
	if err != nil {
		return host{}, err
	}
	var about struct {
		Name    string   `json:"resource_name"`
		Servers []string `json:"authorization_servers"`
	}
	if u, err := url.Parse(address); err == nil {
		u.Path, u.RawQuery = metadataPath+u.Path, ""
		if meta, data, err := exchange(ctx, http.MethodGet, u.String(), "", ""); err == nil && meta.StatusCode == http.StatusOK {
			_ = json.Unmarshal(data, &about) // another server has other metadata
		}
	}
	ours := about.Name == "Glovebox" || strings.HasPrefix(res.Header.Get("WWW-Authenticate"), `Bearer realm="glovebox"`)
	switch {
	case ours && res.StatusCode == http.StatusUnauthorized:
		return host{wantsToken: true, signIn: len(about.Servers) > 0}, nil
	case ours && res.StatusCode == http.StatusOK:
		return host{}, nil
	case res.StatusCode/100 == 3:
		return host{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "--url: %s redirects to %.200q", address, res.Header.Get("Location")),
			"if that is the server, name its URL")
	}
	return host{}, sandbox.WithHint(
		sandbox.Errorf(sandbox.Invalid, "--url: there is no Glovebox for MCP at %s; it answered %s%s", address, res.Status, said(text)),
		"the URL of a Glovebox server ends in /mcp; glovebox serve prints it")
}

// try asks the server at address whether it accepts a token. The error is of kind
// Unauthenticated if it does not.
func try(ctx context.Context, address, token string) error {
	res, text, err := exchange(ctx, http.MethodPost, address, token, hello)
	if err != nil {
		return err
	}
	if id := res.Header.Get("Mcp-Session-Id"); id != "" {
		// The server forgets the session by itself, too, but later.
		defer endSession(context.WithoutCancel(ctx), address, token, id)
	}
	switch res.StatusCode {
	case http.StatusOK:
		return nil
	case http.StatusUnauthorized:
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unauthenticated, "%s does not accept the token", address),
			"glovebox token create NAME, on the server, makes one")
	}
	return sandbox.Errorf(sandbox.Unavailable, "%s answered %s to the token%s", address, res.Status, said(text))
}

// exchange sends one request and returns the answer with the beginning of its body.
// It follows no redirect, which could lead a token elsewhere. The error is of kind
// Unavailable if there is no answer.
func exchange(ctx context.Context, method, address, token, body string) (*http.Response, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return nil, nil, sandbox.Errorf(sandbox.Invalid, "--url: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := client().Do(req)
	if err != nil {
		return nil, nil, unreachable(address, err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, answerSize))
	if err != nil {
		return nil, nil, unreachable(address, err)
	}
	return res, text, nil
}

func unreachable(address string, err error) error {
	return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s cannot be reached: %w", address, err),
		"check the URL, and that glovebox serve runs there; --offline installs without a look at the server")
}

func client() *http.Client {
	return &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func endSession(ctx context.Context, address, token, id string) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, address, nil)
	if err != nil {
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Mcp-Session-Id", id)
	if res, err := client().Do(req); err == nil {
		_ = res.Body.Close()
	}
}

// said returns the message in a server's refusal for an error, or "".
func said(text []byte) string {
	var m struct{ Message string }
	if json.Unmarshal(text, &m) != nil || m.Message == "" {
		return ""
	}
	if len(m.Message) > 200 {
		m.Message = m.Message[:200]
	}
	return ": " + strings.Map(printable, m.Message)
}
