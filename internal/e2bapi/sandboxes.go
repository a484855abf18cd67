package e2bapi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const (
	// AgentVersion is the version of E2B's agent that the guests of this program
	// emulate. SDKs use newer functions only with newer versions. They ask for
	// none above this one.
	AgentVersion = "0.6.4"
	// oldAgent is the version that guests without a recorded version emulate: those
	// of earlier programs, which sandboxes keep. E2B's own agents, which the driver
	// of E2B's cloud uses, have this version at least.
	oldAgent    = "0.5.7"
	cloudDriver = "e2b"
)

// agentOf returns the version of E2B's agent that the guest of a sandbox emulates.
func agentOf(sb sandbox.Sandbox) string {
	if v := sb.Labels[labelAgent]; v != "" && sb.Driver != cloudDriver {
		return v
	}
	return oldAgent
}

// clientID has no meaning any more, but SDKs require it.
const clientID = "glovebox"

// defaultTimeout is the lifetime of a sandbox if its creator does not specify
// one.
const defaultTimeout = 300 * time.Second

// These labels are internal; all other labels are the caller's metadata.
const (
	labelPrefix     = "glovebox.e2b/"
	labelTemplate   = labelPrefix + "template"
	labelAutoResume = labelPrefix + "auto-resume"
	labelAgent      = labelPrefix + "agent"
	// labelPublic is set if ports of the sandbox need no token. labelHost is the
	// Host header that programs on its ports see.
	labelPublic = labelPrefix + "public-ports"
	labelHost   = labelPrefix + "mask-request-host"
	// These labels are of a sandbox of a template that was built here: the template's
	// name, and the user and the directory of programs.
	labelAlias   = labelPrefix + "alias"
	labelUser    = labelPrefix + "user"
	labelWorkDir = labelPrefix + "workdir"
	// labelVolume is the path at which the creator wants the sandbox's workspace.
	labelVolume = labelPrefix + "volume"
	// labelClient is the User-Agent of the creator.
	labelClient = labelPrefix + "client"
)

// defaultTemplates are the templates that E2B's SDKs request by default. They
// mean the server's default image.
var defaultTemplates = []string{"base", "code-interpreter-v1", "code-interpreter"}

// timeoutField is a number of seconds in E2B's format; nil means absent.
type timeoutField = *int32

// ttl returns a timeout as a duration. Zero is now.
func ttl(t timeoutField) (time.Duration, error) {
	if t == nil {
		return defaultTimeout, nil
	}
	if *t < 0 {
		return 0, sandbox.Errorf(sandbox.Invalid, "timeout: %d is below 0", *t)
	}
	return time.Duration(*t) * time.Second, nil
}

// createRequest is the body of POST /sandboxes in all versions.
type createRequest struct {
	TemplateID          string            `json:"templateID"`
	Timeout             timeoutField      `json:"timeout"`
	Metadata            map[string]string `json:"metadata"`
	EnvVars             map[string]string `json:"envVars"`
	Secure              *bool             `json:"secure"` // every sandbox is secure
	AllowInternetAccess *bool             `json:"allow_internet_access"`
	Network             *networkConfig    `json:"network"`
	AutoPause           *bool             `json:"autoPause"`
	AutoPauseMemory     *bool             `json:"autoPauseMemory"`
	AutoResume          *struct {
		Enabled bool `json:"enabled"`
		Timeout int  `json:"timeout"`
	} `json:"autoResume"`

	// MCP has servers for a gateway. It changes nothing here: the client itself starts
	// the image's program mcp-gateway with them, as a command.
	MCP          map[string]json.RawMessage `json:"mcp"`
	IAM          json.RawMessage            `json:"iam"`
	VolumeMounts []volumeMount              `json:"volumeMounts"`
}

// sandboxAnswer is the answer to create, connect and resume.
type sandboxAnswer struct {
	SandboxID          string `json:"sandboxID"`
	TemplateID         string `json:"templateID"`
	Alias              string `json:"alias"`
	ClientID           string `json:"clientID"`
	EnvdVersion        string `json:"envdVersion"`
	EnvdAccessToken    string `json:"envdAccessToken"`
	TrafficAccessToken string `json:"trafficAccessToken"`
	Domain             string `json:"domain"`
}

func (s *Server) create(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in createRequest
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	req, err := in.request()
	if err != nil {
		return 0, nil, err
	}
	if err := s.useSnapshot(r.Context(), p, &req); err != nil {
		return 0, nil, err
	}
	start, err := s.useTemplate(r.Context(), p, &req)
	if err != nil {
		return 0, nil, err
	}
	if req.Snapshot == "" || in.AllowInternetAccess != nil || in.Network != nil {
		if req.Network, err = s.networkOf(in.AllowInternetAccess, in.Network); err != nil {
			return 0, nil, err
		}
	}
	if req.HeaderRules, err = s.headerRules(p, in.Network); err != nil {
		return 0, nil, err
	}
	if s.opts.PublicPorts && in.Network.public() {
		req.Labels[labelPublic] = "true"
	}
	if err := s.checkMounts(r.Context(), p, in.VolumeMounts); err != nil {
		return 0, nil, err
	}
	volume := s.setVolumes(&req, in.VolumeMounts)
	if client := userAgent(r); client != "" {
		req.Labels[labelClient] = client
	}
	now := req.TTL == 0
	if now {
		req.TTL = sandbox.MinIdle // the engine's zero is no end
	}
	sb, err := s.opts.Engine.Create(r.Context(), p, req)
	if err == nil && volume != nil {
		if err = s.linkVolume(r.Context(), p, sb.ID, volume); err != nil {
			if serr := s.opts.Engine.Stop(context.WithoutCancel(r.Context()), p, sb.ID); serr != nil {
				s.opts.Log.Error("stop a sandbox without its volume", "sandbox", sb.ID, "error", serr)
			}
		}
	}
	if err == nil {
		err = start(r.Context(), sb.ID)
	}
	if err == nil && now {
		sb, err = s.opts.Engine.SetEnd(r.Context(), p, sb.ID, 0)
	}
	if err != nil {
		return 0, nil, err
	}
	s.journal.add(sb.ID, "info", "the sandbox was created", nil)
	return http.StatusCreated, s.answerOf(r, sb), nil
}

// userAgent returns the begin of a request's User-Agent, without characters that a
// terminal would not show as they are.
func userAgent(r *http.Request) string {
	const most = 80
	text := strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return -1
		}
		return c
	}, r.UserAgent())
	return text[:min(len(text), most)]
}

// ClientOf returns the name of the client that made a sandbox by this protocol, as
// the client gives it, or "".
func ClientOf(sb sandbox.Sandbox) string { return sb.Labels[labelClient] }

// request converts a request for the engine, without its network. If the server does not support a
// part of it, the error wraps [sandbox.Unsupported].
func (in *createRequest) request() (sandbox.CreateRequest, error) {
	none := sandbox.CreateRequest{}
	if len(in.IAM) > 0 && string(in.IAM) != "null" {
		return none, sandbox.Errorf(sandbox.Unsupported, "iam: there are no workload identities")
	}
	filesOnly := in.AutoPauseMemory != nil && !*in.AutoPauseMemory
	if filesOnly && in.AutoResume != nil && in.AutoResume.Enabled {
		return none, sandbox.Errorf(sandbox.Invalid, "autoPauseMemory: a sandbox that is paused without memory has no programs that a request could resume, so autoResume must be off")
	}
	d, err := ttl(in.Timeout)
	if err != nil {
		return none, err
	}
	for name := range in.Metadata {
		if strings.HasPrefix(name, labelPrefix) {
			return none, sandbox.Errorf(sandbox.Invalid, "metadata: names that begin with %s are taken", labelPrefix)
		}
	}
	labels := maps.Clone(in.Metadata)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[labelAgent] = AgentVersion
	req := sandbox.CreateRequest{Env: in.EnvVars, TTL: d, Restless: true, Labels: labels}
	if in.TemplateID != "" {
		labels[labelTemplate] = in.TemplateID
	}
	if in.Network != nil && in.Network.MaskRequestHost != "" {
		labels[labelHost] = in.Network.MaskRequestHost
	}
	if in.TemplateID != "" && !slices.Contains(defaultTemplates, in.TemplateID) {
		req.Image = in.TemplateID
	}
	if in.AutoPause != nil && *in.AutoPause {
		req.AtEnd = sandbox.AtEndHibernate
		if filesOnly {
			req.AtEnd = sandbox.AtEndHibernateFiles
		}
	}
	if in.AutoResume != nil && in.AutoResume.Enabled {
		labels[labelAutoResume] = "true"
	}
	return req, nil
}

// answerOf returns the answer that gives access to a sandbox.
func (s *Server) answerOf(r *http.Request, sb sandbox.Sandbox) sandboxAnswer {
	return sandboxAnswer{
		SandboxID: sandbox.HostID(sb.ID), TemplateID: templateOf(sb), Alias: aliasOf(sb), ClientID: clientID, EnvdVersion: agentOf(sb),
		EnvdAccessToken: s.opts.Access.Token(sb.ID), TrafficAccessToken: s.opts.Access.TrafficToken(sb.ID), Domain: s.domainOf(r),
	}
}

// domainOf returns the domain of the server for the client of a request.
func (s *Server) domainOf(r *http.Request) string {
	domain := s.opts.Domain
	if domain == "" {
		// Do not leave the domain empty. SDKs would use E2B's own domain instead,
		// and send the access token there.
		domain = r.Host
		if u := (url.URL{Host: r.Host}); sandbox.IsLoopback(u.Hostname()) {
			// A name below an address is no host name. Names below localhost are
			// this machine, for browsers and for most clients.
			domain = "localhost"
			if u.Port() != "" {
				domain += ":" + u.Port()
			}
		}
	}
	return domain
}

// templateOf returns the template of a sandbox. A sandbox that was created over
// another protocol has no template, so its image stands for it.
func templateOf(sb sandbox.Sandbox) string {
	if t := sb.Labels[labelTemplate]; t != "" {
		return t
	}
	return sb.Image
}

// idOf returns the identifier of the sandbox in a request's path, which may be in
// either form.
func idOf(r *http.Request) string { return sandbox.CanonicalID(r.PathValue("id")) }

// get returns a sandbox. For a stopped sandbox, the error wraps
// [sandbox.NotFound].
func (s *Server) get(r *http.Request, p sandbox.Principal) (sandbox.Sandbox, error) {
	sb, err := s.opts.Engine.Get(r.Context(), p, idOf(r))
	if err == nil && sb.State == sandbox.Stopped {
		err = sandbox.Errorf(sandbox.NotFound, "sandbox %s has stopped: %s", sb.ID, sb.Cause)
	}
	return sb, err
}

// gone converts the engine's [sandbox.Conflict] for a stopped sandbox to
// [sandbox.NotFound], as E2B's clients expect.
func (s *Server) gone(r *http.Request, p sandbox.Principal, err error) error {
	if errors.Is(err, sandbox.Conflict) {
		if _, gerr := s.get(r, p); errors.Is(gerr, sandbox.NotFound) {
			return gerr
		}
	}
	return err
}

func (s *Server) kill(r *http.Request, p sandbox.Principal) (int, any, error) {
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, s.opts.Engine.Stop(r.Context(), p, sb.ID)
}

func (s *Server) timeout(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Timeout timeoutField `json:"timeout"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	d, err := ttl(in.Timeout)
	if err != nil {
		return 0, nil, err
	}
	if _, err := s.get(r, p); err != nil {
		return 0, nil, err
	}
	_, err = s.opts.Engine.SetEnd(r.Context(), p, idOf(r), d)
	return http.StatusNoContent, nil, s.gone(r, p, err)
}

// refresh extends a sandbox's lifetime to a minimum.
func (s *Server) refresh(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Duration timeoutField `json:"duration"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	d, err := ttl(in.Duration)
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.get(r, p)
	if err == nil {
		_, err = s.extend(r, p, sb, d)
	}
	return http.StatusNoContent, nil, s.gone(r, p, err)
}

// extend moves the end of a sandbox to d from now. It does nothing if the sandbox
// has no end, or a later end.
func (s *Server) extend(r *http.Request, p sandbox.Principal, sb sandbox.Sandbox, d time.Duration) (sandbox.Sandbox, error) {
	if sb.Ends.IsZero() || !sb.Ends.Before(s.opts.Now().Add(d)) {
		return sb, nil
	}
	return s.opts.Engine.SetEnd(r.Context(), p, sb.ID, d)
}

func (s *Server) pause(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in struct {
		Memory *bool `json:"memory"`
	}
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	if in.Memory != nil && !*in.Memory && sb.State != sandbox.Hibernated {
		// The sandbox has no memory to keep after this.
		err = s.opts.Engine.Restart(r.Context(), p, idOf(r))
	}
	if err == nil {
		err = s.opts.Engine.Hibernate(r.Context(), p, idOf(r))
	}
	if errors.Is(err, sandbox.Conflict) {
		// E2B's clients interpret a conflict as "already paused".
		sb, gerr := s.get(r, p)
		if gerr != nil {
			return 0, nil, gerr
		}
		if sb.State != sandbox.Hibernated {
			return 0, nil, sandbox.Errorf(sandbox.Unavailable, "%w", err)
		}
	}
	if err == nil {
		s.journal.add(idOf(r), "info", "the sandbox was paused", nil)
	}
	return http.StatusNoContent, nil, err
}

// connectRequest is the body of connect, and of the older resume.
type connectRequest struct {
	Timeout   timeoutField `json:"timeout"`
	Memory    *bool        `json:"memory"`
	AutoPause *bool        `json:"autoPause"` // deprecated, no effect
}

func (s *Server) connect(r *http.Request, p sandbox.Principal) (int, any, error) {
	var in connectRequest
	if err := readBody(r, &in); err != nil {
		return 0, nil, err
	}
	d, err := ttl(in.Timeout)
	if err != nil {
		return 0, nil, err
	}
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	status := http.StatusOK
	if sb.State == sandbox.Hibernated {
		status = http.StatusCreated
		if err := s.opts.Engine.Wake(r.Context(), p, sb.ID); err != nil {
			return 0, nil, s.gone(r, p, err)
		}
		if in.Memory != nil && !*in.Memory {
			if err := s.opts.Engine.Restart(r.Context(), p, sb.ID); err != nil {
				return 0, nil, s.gone(r, p, err)
			}
		}
		s.journal.add(sb.ID, "info", "the sandbox was resumed", nil)
		sb, err = s.opts.Engine.SetEnd(r.Context(), p, sb.ID, d)
	} else {
		sb, err = s.extend(r, p, sb, d)
	}
	if err != nil {
		return 0, nil, s.gone(r, p, err)
	}
	return status, s.answerOf(r, sb), nil
}

func (s *Server) resume(r *http.Request, p sandbox.Principal) (int, any, error) {
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	if sb.State != sandbox.Hibernated {
		return 0, nil, sandbox.Errorf(sandbox.Conflict, "sandbox %s is running already", sb.ID)
	}
	return s.connect(r, p)
}

// An entry is a sandbox in a list, and a part of the answer of info.
type entry struct {
	SandboxID   string            `json:"sandboxID"`
	TemplateID  string            `json:"templateID"`
	Alias       string            `json:"alias"`
	ClientID    string            `json:"clientID"`
	StartedAt   time.Time         `json:"startedAt"`
	EndAt       time.Time         `json:"endAt"`
	State       string            `json:"state"`
	CPUCount    int32             `json:"cpuCount"`
	MemoryMB    int32             `json:"memoryMB"`
	DiskSizeMB  int32             `json:"diskSizeMB"`
	EnvdVersion string            `json:"envdVersion"`
	Metadata    map[string]string `json:"metadata"`

	VolumeMounts []volumeMount `json:"volumeMounts,omitempty"`
}

func entryOf(sb sandbox.Sandbox) entry {
	metadata := map[string]string{}
	for name, value := range sb.Labels {
		if !strings.HasPrefix(name, labelPrefix) {
			metadata[name] = value
		}
	}
	end := sb.Expires
	if sb.State != sandbox.Hibernated && !sb.Ends.IsZero() {
		end = sb.Ends
	}
	return entry{
		SandboxID: sandbox.HostID(sb.ID), TemplateID: templateOf(sb), Alias: aliasOf(sb), ClientID: clientID,
		StartedAt: sb.Created, EndAt: end, State: stateOf(sb),
		CPUCount:   int32(math.Ceil(sb.Limits.CPUs)),
		MemoryMB:   megabytes(sb.Limits.MemoryBytes),
		DiskSizeMB: megabytes(sb.Limits.DiskBytes),

		EnvdVersion: agentOf(sb), Metadata: metadata, VolumeMounts: mountsOf(sb),
	}
}

// The states of E2B's sandboxes.
const (
	stateRunning = "running"
	statePaused  = "paused"
)

func stateOf(sb sandbox.Sandbox) string {
	if sb.State == sandbox.Hibernated {
		return statePaused
	}
	return stateRunning
}

func megabytes(n int64) int32 { return int32(min(n>>20, math.MaxInt32)) }

func (s *Server) info(r *http.Request, p sandbox.Principal) (int, any, error) {
	sb, err := s.get(r, p)
	if err != nil {
		return 0, nil, err
	}
	type lifecycle struct {
		OnTimeout  string `json:"onTimeout"`
		AutoResume bool   `json:"autoResume"`
	}
	onTimeout := "kill"
	if sb.AtEnd.Hibernates() {
		onTimeout = "pause"
	}
	internet, network := s.networkInfo(sb)
	access := s.answerOf(r, sb)
	return http.StatusOK, struct {
		entry
		EnvdAccessToken     string         `json:"envdAccessToken"`
		Domain              string         `json:"domain"`
		AllowInternetAccess bool           `json:"allowInternetAccess"`
		Network             *networkConfig `json:"network"`
		Lifecycle           lifecycle      `json:"lifecycle"`
	}{
		entryOf(sb), access.EnvdAccessToken, access.Domain, internet, network,
		lifecycle{onTimeout, sb.Labels[labelAutoResume] != ""},
	}, nil
}
