package sandbox

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// A Secret is a value that programs use and never have. They have its
// placeholder, in an environment variable of its name; the sandbox's network
// puts the value in its place in the headers of HTTPS requests to its hosts, and
// nowhere else.
type Secret struct {
	// Name is that of the environment variable.
	Name string `json:"name"`
	// Hosts are the only ones that get the value: rules of host names, each
	// with its port, as [ParseSecretHosts] gives them.
	Hosts Network `json:"hosts"`
	// Headers are the only ones of a request in which the value takes the
	// placeholder's place, as [ParseSecretHeaders] gives them; none is
	// [DefaultSecretHeaders].
	Headers []string `json:"headers,omitempty"`
	// Value is what takes the placeholder's place. It is not in JSON.
	Value SecretValue `json:"-"`
	// Principals are those whose sandboxes use the secret; none is everybody.
	Principals []Principal `json:"-"`
}

// A SecretValue is a text that prints, logs and marshals as if it were not
// there: only Reveal gives it away.
type SecretValue struct {
	text *string // behind a pointer, which is all that %v of an outer struct could show
}

// NewSecretValue returns text as a SecretValue.
func NewSecretValue(text string) SecretValue { return SecretValue{text: &text} }

// Reveal returns the text itself.
func (v SecretValue) Reveal() string {
	if v.text == nil {
		return ""
	}
	return *v.text
}

func (SecretValue) String() string { return "[secret]" }

// GoString implements [fmt.GoStringer].
func (SecretValue) GoString() string { return "[secret]" }

// MarshalJSON implements [json.Marshaler].
func (SecretValue) MarshalJSON() ([]byte, error) { return []byte(`"[secret]"`), nil }

// Bounds on secrets, in bytes: a value fits a request's headers, and is not
// found by chance; all values together are what a server may have.
const (
	maxSecretValue = 8 << 10
	minSecretValue = 8
	maxAllSecrets  = 32 << 10
)

// securePort is where a secret goes if its host names no port.
const securePort = 443

// secretName and maxSecretName say what a secret may be called. To have the pattern
// count would make it the largest part of what a guest does before it starts.
var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const maxSecretName = 64 // characters

// Placeholder returns what programs have in the value's place. No name's is
// part of another's, and it is of characters that every header may have.
func (s *Secret) Placeholder() string { return "glovebox-secret-" + s.Name + "-placeholder" }

// IsFor reports whether the value may go to the host of that name, in lower
// case, on that port.
func (s *Secret) IsFor(name string, port uint16) bool {
	return slices.ContainsFunc(s.Hosts.Rules(), func(r NetworkRule) bool {
		return r.Port == port && r.AllowsName(name)
	})
}

// ParseSecretHosts reads the hosts of a secret: as [ParseNetwork] does, but only
// names of hosts, which are for port 443 unless they say another.
func ParseSecretHosts(items ...string) (Network, error) {
	hosts, err := ParseNetwork(items...)
	if err != nil {
		return "", err
	}
	var texts []string
	for _, r := range hosts.Rules() {
		if r.Host == "" {
			return "", WithHint(Errorf(Invalid, "a secret cannot be for %s: its host must have a certificate with a name", r),
				"write host names, like api.example.com, *.example.com or api.example.com:8443")
		}
		if r.Port == 0 {
			r.Port = securePort
		}
		if s := r.String(); !slices.Contains(texts, s) {
			texts = append(texts, s)
		}
	}
	if len(texts) == 0 {
		return "", WithHint(Errorf(Invalid, "a secret is for no host"), "name the hosts that get it: --secret-host api.example.com")
	}
	return Network(strings.Join(texts, ",")), nil
}

// DefaultSecretHeaders returns the headers of a secret that names none: those in
// which hosts expect a key and do not send it back.
func DefaultSecretHeaders() []string {
	return []string{
		"Authorization", "Cookie",
		"Api-Key", "Apikey", "X-Api-Key", "X-Api-Token", "X-Apikey", "X-Key", "Xi-Api-Key",
		"X-Access-Token", "X-Auth-Key", "X-Auth-Token", "X-Token",
		"Dd-Api-Key", "Dd-Application-Key", // Datadog
		"Job-Token", "Private-Token", // GitLab
		"Ocp-Apim-Subscription-Key", "X-Functions-Key", // Azure
		"X-Figma-Token", "X-Goog-Api-Key", "X-Honeycomb-Team", "X-Rapidapi-Key",
		"X-Shopify-Access-Token", "X-Subscription-Token", "X-Vault-Token",
	}
}

// TakesHeader reports whether the value may be in a header of that name, which
// is in canonical form.
func (s *Secret) TakesHeader(name string) bool {
	names := s.Headers
	if len(names) == 0 {
		names = DefaultSecretHeaders()
	}
	return slices.Contains(names, name)
}

// Bounds on the headers of a secret.
const (
	maxSecretHeaders = 32
	maxSecretHeader  = 64 // characters
)

// headerCharacters are those that the name of a header may have.
const headerCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+.^_`|~-"

// unfitHeaders say how a request is carried or whom it is for. A gateway writes
// them itself.
var unfitHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ParseSecretHeaders reads the headers of a secret: names, in items that may hold
// several with commas between. The error wraps [Invalid] and names the header.
func ParseSecretHeaders(items ...string) ([]string, error) {
	var names []string
	for item := range strings.SplitSeq(strings.Join(items, ","), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if len(item) > maxSecretHeader || strings.Trim(item, headerCharacters) != "" {
			return nil, WithHint(Errorf(Invalid, "%.64q is not the name of a header", item), "write names, like X-Api-Key")
		}
		name := textproto.CanonicalMIMEHeaderKey(item)
		if slices.Contains(unfitHeaders, name) {
			return nil, WithHint(Errorf(Invalid, "a secret cannot be in the header %s, which the sandbox's network writes itself", name),
				"name the header in which the host expects the key, like X-Api-Key")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > maxSecretHeaders {
		return nil, WithHint(Errorf(Invalid, "a secret has %d headers, more than %d", len(names), maxSecretHeaders),
			"name those in which its hosts expect it")
	}
	return names, nil
}

// UsedBy reports whether the sandboxes of p use the secret.
func (s *Secret) UsedBy(p Principal) bool {
	return len(s.Principals) == 0 || slices.Contains(s.Principals, p)
}

// CheckSecrets reports what is wrong with a server's secrets.
func CheckSecrets(secrets []Secret) error {
	total := 0
	for i, s := range secrets {
		if err := s.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(secrets[:i], func(o Secret) bool { return o.Name == s.Name }) {
			return WithHint(Errorf(Invalid, "secret %q is there twice", s.Name), "give each its own name; one secret may have several hosts")
		}
		total += len(s.Value.Reveal())
	}
	if total > maxAllSecrets {
		return WithHint(Errorf(Invalid, "the secrets have %d bytes, more than %d", total, maxAllSecrets), "run a server for each group of them")
	}
	return nil
}

// Check reports what is wrong with s, which is otherwise complete and in
// canonical form. The error wraps [Invalid], has a hint, and never has the value.
func (s *Secret) Check() error {
	wrong := func(hint, why string, args ...any) error {
		return WithHint(Errorf(Invalid, "secret %.64q "+why, append([]any{s.Name}, args...)...), "%s", hint)
	}
	if len(s.Name) > maxSecretName || !secretName.MatchString(s.Name) {
		return wrong("it is an environment variable's name, like API_KEY", "is not a name")
	}
	if hosts, err := ParseSecretHosts(string(s.Hosts)); err != nil || hosts != s.Hosts {
		return wrong("write host names, like api.example.com or *.example.com", "is for %q, which are no hosts (%v)", string(s.Hosts), err)
	}
	if headers, err := ParseSecretHeaders(s.Headers...); err != nil || !slices.Equal(headers, s.Headers) {
		return wrong("write names of headers, like X-Api-Key", "is for the headers %q (%v)", s.Headers, err)
	}
	value := s.Value.Reveal()
	switch {
	case len(value) < minSecretValue || len(value) > maxSecretValue:
		return wrong("a line end at the end of a file or a variable is no part of it", "has %d characters, not between %d and %d", len(value), minSecretValue, maxSecretValue)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return wrong("headers hold one line of text; encode it as its host wants it", "has control characters")
	}
	return nil
}
