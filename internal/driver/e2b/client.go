package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Limits of requests to the control plane, and of retries.
const (
	requestTimeout = 30 * time.Second
	createTimeout  = 2 * time.Minute
	maxAnswer      = 8 << 20
	maxTries       = 5
	firstPause     = 200 * time.Millisecond
	maxPause       = 10 * time.Second
)

// A control is a client of E2B's control plane.
type control struct {
	url, key string
	client   *http.Client
	// wait waits between two attempts. Tests replace it.
	wait func(ctx context.Context, d time.Duration) error
}

// details is the control plane's description of a sandbox.
type details struct {
	SandboxID           string            `json:"sandboxID"`
	TemplateID          string            `json:"templateID"`
	EnvdVersion         string            `json:"envdVersion"`
	EnvdAccessToken     string            `json:"envdAccessToken"`
	TrafficAccessToken  string            `json:"trafficAccessToken"`
	Domain              string            `json:"domain"`
	Metadata            map[string]string `json:"metadata"`
	State               string            `json:"state"`
	CPUCount            float64           `json:"cpuCount"`
	MemoryMB            int64             `json:"memoryMB"`
	DiskSizeMB          int64             `json:"diskSizeMB"`
	AllowInternetAccess *bool             `json:"allowInternetAccess"`
	StartedAt           time.Time         `json:"startedAt"`
}

// ref returns the reference of a sandbox. Another Glovebox server may name a sandbox
// with an underscore at one time, and without one after an update. The reference,
// which is stored, has to stay the same.
func (s *details) ref() string { return sandbox.CanonicalID(s.SandboxID) }

// A refusal is an answer of the control plane with an error status.
type refusal struct {
	status  int
	message string
}

func (e *refusal) Error() string {
	return fmt.Sprintf("E2B answers %d %s: %s", e.status, http.StatusText(e.status), e.message)
}

// refused returns an answer as an error, with a hint at the remedy.
func refused(status int, message string) error {
	err := error(&refusal{status, message})
	wrap := func(k sandbox.Kind, hint string) error {
		return sandbox.WithHint(sandbox.Errorf(k, "%w", err), "%s", hint)
	}
	lower := strings.ToLower(message)
	switch {
	case status == http.StatusUnauthorized:
		return wrap(sandbox.Unavailable, "set E2B_API_KEY to a key from E2B's dashboard; for another server, also set E2B_API_URL")
	case status == http.StatusForbidden:
		return wrap(sandbox.Unavailable, "use a key in E2B_API_KEY that may do this, and a template of the key's team")
	case status == http.StatusNotFound && strings.Contains(lower, "template"),
		status == http.StatusBadRequest && strings.Contains(lower, "template"):
		return wrap(sandbox.NotFound, "use the name of a template of your team as the image, or \"host\" for E2B's code interpreter")
	case status == http.StatusNotFound:
		return fmt.Errorf("%w: %w", driver.ErrGone, err)
	case status == http.StatusTooManyRequests:
		return wrap(sandbox.Exhausted, "stop some sandboxes, wait, or ask E2B for a higher limit of your team")
	case status == http.StatusConflict:
		return wrap(sandbox.Conflict, "try again in a moment")
	case status == http.StatusNotImplemented:
		return wrap(sandbox.Unsupported, "use a server of E2B's protocol that supports this request")
	case status/100 == 4:
		return wrap(sandbox.Invalid, "change the request; E2B does not accept it")
	}
	return wrap(sandbox.Unavailable, "try again later; see E2B's status at https://status.e2b.dev")
}

// call sends a request, with retries, and decodes the answer to out unless out
// is nil. It retries a request that is not idempotent only if the failed request
// certainly had no effect. next is the token of the next page of a list.
func (c *control) call(ctx context.Context, method, path string, in, out any) (next string, err error) {
	body, err := bodyOf(in)
	if err != nil {
		return "", err
	}
	safe := method != http.MethodPost || !strings.HasSuffix(path, "/sandboxes")
	for try := 1; ; try++ {
		var pause time.Duration
		next, pause, err = c.try(ctx, method, path, body, out)
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = errors.Join(ctx.Err(), err) // ctx ended as the answer came
		}
		if err == nil || try == maxTries || ctx.Err() != nil || !again(err, safe) {
			return next, err
		}
		if pause == 0 {
			pause = min(firstPause<<(try-1), maxPause)
			pause += rand.N(pause) // jitter, to spread retries
		}
		if werr := c.wait(ctx, min(pause, maxPause)); werr != nil {
			return "", errors.Join(werr, err)
		}
	}
}

// bodyOf returns the body of a request as JSON, or nil for nil.
func bodyOf(in any) ([]byte, error) {
	if in == nil {
		return nil, nil
	}
	return json.Marshal(in)
}

// again reports whether a failed request may be retried.
func again(err error, safe bool) bool {
	if r, ok := errors.AsType[*refusal](err); ok {
		if r.status == http.StatusTooManyRequests || r.status == http.StatusServiceUnavailable {
			return true // the request was not started
		}
		return safe && r.status >= 500 && r.status != http.StatusNotImplemented
	}
	return safe
}

// try sends a request once. pause is the delay that the server asks for.
func (c *control) try(ctx context.Context, method, path string, body []byte, out any) (next string, pause time.Duration, err error) {
	limit := requestTimeout
	if method == http.MethodPost && !strings.HasSuffix(path, "/timeout") {
		limit = createTimeout // or pause, or resume
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, bytes.NewReader(body))
	if err != nil {
		return "", 0, sandbox.Errorf(sandbox.Invalid, "E2B_API_URL: %w", err)
	}
	req.Header.Set("X-API-KEY", c.key)
	req.Header.Set("User-Agent", "glovebox")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return "", 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "reach E2B: %w", err),
			"check that this machine reaches %s, or set E2B_API_URL", c.url)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err != nil || len(text) > maxAnswer {
		return "", 0, sandbox.Errorf(sandbox.Unavailable, "read E2B's answer: %d bytes, %w", len(text), errors.Join(err))
	}
	if resp.StatusCode/100 != 2 {
		if n, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && n > 0 {
			pause = time.Duration(min(n, 3600)) * time.Second
		}
		return "", pause, refused(resp.StatusCode, messageOf(text))
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return "", 0, sandbox.Errorf(sandbox.Unavailable, "decode E2B's answer: %w", err)
		}
	}
	return resp.Header.Get("X-Next-Token"), 0, nil
}

// messageOf returns the error message of an answer on one line, shortened.
func messageOf(text []byte) string {
	var e struct{ Message string }
	message := string(text)
	if json.Unmarshal(text, &e) == nil && e.Message != "" {
		message = e.Message
	}
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "\uFFFD")), " ")
	return message[:min(len(message), 500)]
}

func (c *control) get(ctx context.Context, id string) (*details, error) {
	var d details
	_, err := c.call(ctx, http.MethodGet, "/sandboxes/"+url.PathEscape(id), nil, &d)
	return &d, err
}

// kill ends a sandbox. A missing sandbox is not an error.
func (c *control) kill(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodDelete, "/sandboxes/"+url.PathEscape(id), nil, nil)
	if driver.IsGone(err) {
		return nil
	}
	return err
}

// extend sets the timeout of a sandbox to d from now.
func (c *control) extend(ctx context.Context, id string, d time.Duration) error {
	_, err := c.call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/timeout", map[string]int64{"timeout": int64(d / time.Second)}, nil)
	return err
}

// pause pauses a sandbox. A paused sandbox is not an error.
func (c *control) pause(ctx context.Context, id string) error {
	_, err := c.call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/pause", nil, nil)
	if r, ok := errors.AsType[*refusal](err); ok && r.status == http.StatusConflict {
		return nil
	}
	return err
}

// connect resumes a sandbox, with a timeout of at least d from now.
func (c *control) connect(ctx context.Context, id string, d time.Duration) (*details, error) {
	var s details
	_, err := c.call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/connect", map[string]int64{"timeout": int64(d / time.Second)}, &s)
	return &s, err
}

// list returns the sandboxes with these metadata.
func (c *control) list(ctx context.Context, metadata map[string]string) ([]details, error) {
	pairs := url.Values{}
	for name, value := range metadata {
		pairs.Set(url.PathEscape(name), url.PathEscape(value))
	}
	q := url.Values{"metadata": {pairs.Encode()}, "state": {"running,paused"}, "limit": {"100"}}
	var all []details
	for {
		var some []details
		next, err := c.call(ctx, http.MethodGet, "/v2/sandboxes?"+q.Encode(), nil, &some)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
		if next == "" || len(some) == 0 {
			return all, nil
		}
		q.Set("nextToken", next)
	}
}
