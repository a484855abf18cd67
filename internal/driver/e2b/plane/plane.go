// Package plane is a client of E2B's control plane, which makes, lists and ends sandboxes
// and snapshots.
//
// The driver e2b and its snapshots use it. A [Client] lives as long as the driver.
package plane

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
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Limits of requests to the control plane, and of retries.
const (
	RequestTimeout = 30 * time.Second
	createTimeout  = 2 * time.Minute
	maxAnswer      = 8 << 20
	MaxTries       = 5
	FirstPause     = 200 * time.Millisecond
	maxPause       = 10 * time.Second
)

// A Client is a client of E2B's control plane.
type Client struct {
	URL, Key string
	HTTP     *http.Client
	// Wait waits between two attempts.
	Wait func(ctx context.Context, d time.Duration) error
}

// A Sandbox is the control plane's description of a sandbox.
type Sandbox struct {
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

// Ref returns the reference of a sandbox. Another Glovebox server may name a sandbox
// with an underscore at one time, and without one after an update. The reference,
// which is stored, has to stay the same.
func (s *Sandbox) Ref() string { return sandbox.CanonicalID(s.SandboxID) }

// A Refusal is an answer of the control plane with an error status.
type Refusal struct {
	Status  int
	Message string
}

func (e *Refusal) Error() string {
	return fmt.Sprintf("E2B answers %d %s: %s", e.Status, http.StatusText(e.Status), e.Message)
}

// refused returns an answer as an error, with a hint at the remedy.
func refused(status int, message string) error {
	err := error(&Refusal{status, message})
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

// Call sends a request, with retries, and decodes the answer to out unless out
// is nil. It retries a request that is not idempotent only if the failed request
// certainly had no effect. next is the token of the next page of a list.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) (next string, err error) {
	body, err := BodyOf(in)
	if err != nil {
		return "", err
	}
	safe := method != http.MethodPost || !strings.HasSuffix(path, "/sandboxes") && !strings.HasSuffix(path, "/snapshots")
	for try := 1; ; try++ {
		var pause time.Duration
		next, pause, err = c.try(ctx, method, path, body, out)
		if err != nil && ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
			err = errors.Join(ctx.Err(), err) // ctx ended as the answer came
		}
		if err == nil || try == MaxTries || ctx.Err() != nil || !again(err, safe) {
			return next, err
		}
		if pause == 0 {
			pause = min(FirstPause<<(try-1), maxPause)
			pause += rand.N(pause) // jitter, to spread retries
		}
		if werr := c.Wait(ctx, min(pause, maxPause)); werr != nil {
			return "", errors.Join(werr, err)
		}
	}
}

// BodyOf returns the body of a request as JSON, or nil for nil.
func BodyOf(in any) ([]byte, error) {
	if in == nil {
		return nil, nil
	}
	return json.Marshal(in)
}

// again reports whether a failed request may be retried.
func again(err error, safe bool) bool {
	if r, ok := errors.AsType[*Refusal](err); ok {
		if r.Status == http.StatusTooManyRequests || r.Status == http.StatusServiceUnavailable {
			return true // the request was not started
		}
		return safe && r.Status >= 500 && r.Status != http.StatusNotImplemented
	}
	return safe
}

// try sends a request once. pause is the delay that the server asks for.
func (c *Client) try(ctx context.Context, method, path string, body []byte, out any) (next string, pause time.Duration, err error) {
	limit := RequestTimeout
	if method == http.MethodPost && !strings.HasSuffix(path, "/timeout") {
		limit = createTimeout // or pause, resume or snapshot
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.URL+path, bytes.NewReader(body))
	if err != nil {
		return "", 0, sandbox.Errorf(sandbox.Invalid, "E2B_API_URL: %w", err)
	}
	req.Header.Set("X-API-KEY", c.Key)
	req.Header.Set("User-Agent", "glovebox")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return "", 0, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "reach E2B: %w", err),
			"check that this machine reaches %s, or set E2B_API_URL", c.URL)
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
		return "", pause, refused(resp.StatusCode, MessageOf(text))
	}
	if out != nil {
		if err := json.Unmarshal(text, out); err != nil {
			return "", 0, sandbox.Errorf(sandbox.Unavailable, "decode E2B's answer: %w", err)
		}
	}
	return resp.Header.Get("X-Next-Token"), 0, nil
}

// MessageOf returns the error message of an answer on one line, shortened.
func MessageOf(text []byte) string {
	var e struct{ Message string }
	message := string(text)
	if json.Unmarshal(text, &e) == nil && e.Message != "" {
		message = e.Message
	}
	message = strings.Join(strings.Fields(strings.ToValidUTF8(message, "\uFFFD")), " ")
	return message[:min(len(message), 500)]
}

// Get returns a sandbox.
func (c *Client) Get(ctx context.Context, id string) (*Sandbox, error) {
	var d Sandbox
	_, err := c.Call(ctx, http.MethodGet, "/sandboxes/"+url.PathEscape(id), nil, &d)
	return &d, err
}

// Kill ends a sandbox. A missing sandbox is not an error.
func (c *Client) Kill(ctx context.Context, id string) error {
	_, err := c.Call(ctx, http.MethodDelete, "/sandboxes/"+url.PathEscape(id), nil, nil)
	if driver.IsGone(err) {
		return nil
	}
	return err
}

// Extend sets the timeout of a sandbox to d from now.
func (c *Client) Extend(ctx context.Context, id string, d time.Duration) error {
	_, err := c.Call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/timeout", map[string]int64{"timeout": int64(d / time.Second)}, nil)
	return err
}

// Pause pauses a sandbox. A paused sandbox is not an error.
func (c *Client) Pause(ctx context.Context, id string) error {
	_, err := c.Call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/pause", nil, nil)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Status == http.StatusConflict {
		return nil
	}
	return err
}

// Connect resumes a sandbox, with a timeout of at least d from now.
func (c *Client) Connect(ctx context.Context, id string, d time.Duration) (*Sandbox, error) {
	var s Sandbox
	_, err := c.Call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/connect", map[string]int64{"timeout": int64(d / time.Second)}, &s)
	return &s, err
}

// List returns the sandboxes with these metadata.
func (c *Client) List(ctx context.Context, metadata map[string]string) ([]Sandbox, error) {
	pairs := url.Values{}
	for name, value := range metadata {
		pairs.Set(url.PathEscape(name), url.PathEscape(value))
	}
	q := url.Values{"metadata": {pairs.Encode()}, "state": {"running,paused"}, "limit": {"100"}}
	var all []Sandbox
	for {
		var some []Sandbox
		next, err := c.Call(ctx, http.MethodGet, "/v2/sandboxes?"+q.Encode(), nil, &some)
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

// validTemplate matches E2B's and Glovebox's identifiers of snapshots: team/name:tag.
var validTemplate = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.:/-]{0,299}$`)

// Snapshot takes a snapshot of a sandbox, and returns its identifier.
func (c *Client) Snapshot(ctx context.Context, id, name string) (string, error) {
	var made struct{ SnapshotID string }
	_, err := c.Call(ctx, http.MethodPost, "/sandboxes/"+url.PathEscape(id)+"/snapshots", map[string]string{"name": name}, &made)
	if err == nil && !validTemplate.MatchString(made.SnapshotID) {
		err = sandbox.Errorf(sandbox.Unavailable, "E2B returned the invalid snapshot ID %.80q", made.SnapshotID)
	}
	return made.SnapshotID, err
}

// Snapshots returns the identifiers of the team's snapshots whose names are the prefix and
// an identifier of ours, by the latter.
func (c *Client) Snapshots(ctx context.Context, prefix string) (map[string][]string, error) {
	all := map[string][]string{}
	q := url.Values{"limit": {"100"}}
	for {
		var some []struct {
			SnapshotID string
			Names      []string
		}
		next, err := c.Call(ctx, http.MethodGet, "/snapshots?"+q.Encode(), nil, &some)
		if err != nil {
			return nil, err
		}
		for _, s := range some {
			for _, name := range append(s.Names, s.SnapshotID) {
				name, _, _ = strings.Cut(name[strings.LastIndex(name, "/")+1:], ":") // without team and tag
				if id, ok := strings.CutPrefix(name, prefix); ok && sandbox.ValidID(id) && validTemplate.MatchString(s.SnapshotID) {
					all[id] = append(all[id], s.SnapshotID)
					break
				}
			}
		}
		if next == "" || len(some) == 0 {
			return all, nil
		}
		q.Set("nextToken", next)
	}
}

// DeleteSnapshot deletes a snapshot by its identifier or name.
func (c *Client) DeleteSnapshot(ctx context.Context, name string) error {
	_, err := c.Call(ctx, http.MethodDelete, "/templates/"+url.PathEscape(name), nil, nil)
	return err
}
