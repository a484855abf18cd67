package sandbox

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"
)

// A Secret is a value that programs use but never see. They see a placeholder in
// an environment variable of the secret's name. The sandbox's network replaces
// the placeholder by the value in headers of HTTPS requests to the secret's
// hosts, and nowhere else.
type Secret struct {
	// Name is the name of the environment variable.
	Name string `json:"name"`
	// Hosts are the only hosts that receive the value. They are rules with a host
	// name and a port, in the form of [ParseSecretHosts].
	Hosts Network `json:"hosts"`
	// Headers are the only request headers in which the value replaces the
	// placeholder, in the form of [ParseSecretHeaders]. If there are none,
	// [DefaultSecretHeaders] apply.
	Headers []string `json:"headers,omitempty"`
	// Always makes the secret a header rule of its sandbox's creator: each request
	// to its host has its one header with the value, in place of what the program
	// sent. It has no name, and programs have no placeholder. See [NewHeaderRule].
	Always bool `json:"always,omitempty"`
	// Value replaces the placeholder. It is not in JSON.
	Value SecretValue `json:"-"`
	// Principals are the principals whose sandboxes use the secret. If there are
	// none, every principal's sandboxes use it.
	Principals []Principal `json:"-"`
}

// A SecretValue is a text that does not appear when it is printed, logged or
// marshalled. Only Reveal returns it.
type SecretValue struct {
	text *string // a pointer, so that %v of an outer struct prints only an address
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

// Bounds on secrets, in bytes. The maximum fits into a request's headers. With
// the minimum, a value does not occur in other text by chance. maxAllSecrets
// bounds all values of a server together.
const (
	maxSecretValue = 8 << 10
	minSecretValue = 8
	maxAllSecrets  = 32 << 10
)

// securePort is the port of a secret's host that names none.
const securePort = 443

// secretName and maxSecretName define a valid name. The length is not in the
// pattern, because compiling a counted pattern would dominate the guest's
// start-up time.
var secretName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

const maxSecretName = 64 // characters

// Placeholder returns the text that programs see in place of the value. No
// secret's placeholder is part of another's. Every header may contain its
// characters. All header rules have the same one, for answers only. The caller
// chooses nothing of it, and it is no longer than the shortest value that answers
// hide: otherwise the values of several rules could make an answer grow without end.
func (s *Secret) Placeholder() string {
	if s.Always {
		return "(hidden)"
	}
	return "glovebox-secret-" + s.Name + "-placeholder"
}

// IsFor reports whether the value may go to the host of that name on that port.
// The name is in lower case.
func (s *Secret) IsFor(name string, port uint16) bool {
	return slices.ContainsFunc(s.Hosts.Rules(), func(r NetworkRule) bool {
		return r.Port == port && r.AllowsName(name)
	})
}

// ParseSecretHosts parses the hosts of a secret as [ParseNetwork] does. It
// accepts only host names, and takes port 443 where none is given. The error
// wraps [Invalid].
func ParseSecretHosts(items ...string) (Network, error) {
	hosts, err := ParseNetwork(items...)
	if err == nil {
		err = hosts.CheckAllows()
	}
	if err != nil {
		return "", err
	}
	var texts []string
	for _, r := range hosts.Rules() {
		if r.Host == "" || r.IsThisMachine() {
			return "", WithHint(Errorf(Invalid, "%s cannot be a host of a secret: the host must have a name and a certificate for it", r),
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
		return "", WithHint(Errorf(Invalid, "the secret has no hosts"), "name the hosts that receive it: --secret-host api.example.com")
	}
	return Network(strings.Join(texts, ",")), nil
}

// DefaultSecretHeaders returns the headers of a secret that names none. Hosts
// expect keys in these headers and do not send them back.
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

// TakesHeader reports whether the value may be in the header of that name, which
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

// headerCharacters are the characters that a header name may contain.
const headerCharacters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789!#$%&'*+.^_`|~-"

// unfitHeaders control the transport or the addressee of a request. The gateway
// writes them itself.
var unfitHeaders = []string{
	"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ParseSecretHeaders parses the headers of a secret. Each item holds names
// separated by commas. The error wraps [Invalid] and names the header.
func ParseSecretHeaders(items ...string) ([]string, error) {
	var names []string
	for item := range strings.SplitSeq(strings.Join(items, ","), ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		if len(item) > maxSecretHeader || strings.Trim(item, headerCharacters) != "" {
			return nil, WithHint(Errorf(Invalid, "%.64q is not a header name", item), "write names, like X-Api-Key")
		}
		name := textproto.CanonicalMIMEHeaderKey(item)
		if slices.Contains(unfitHeaders, name) {
			return nil, WithHint(Errorf(Invalid, "a secret cannot be in the header %s, because the sandbox's network writes that header itself", name),
				"name the header in which the host expects the key, like X-Api-Key")
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if len(names) > maxSecretHeaders {
		return nil, WithHint(Errorf(Invalid, "the secret has %d headers; the maximum is %d", len(names), maxSecretHeaders),
			"name only the headers in which its hosts expect it")
	}
	return names, nil
}

// UsedBy reports whether the sandboxes of p use the secret.
func (s *Secret) UsedBy(p Principal) bool {
	return len(s.Principals) == 0 || slices.Contains(s.Principals, p)
}

// CheckSecrets checks a server's secrets. The error wraps [Invalid].
func CheckSecrets(secrets []Secret) error {
	total := 0
	for i, s := range secrets {
		if err := s.Check(); err != nil {
			return err
		}
		if slices.ContainsFunc(secrets[:i], func(o Secret) bool { return o.Name == s.Name }) {
			return WithHint(Errorf(Invalid, "there are two secrets named %q", s.Name), "give each secret its own name; one secret may have several hosts")
		}
		total += len(s.Value.Reveal())
	}
	if total > maxAllSecrets {
		return WithHint(Errorf(Invalid, "the secrets have %d bytes together; the maximum is %d", total, maxAllSecrets), "use separate servers for groups of secrets")
	}
	return nil
}

// Check checks s, whose fields are all set and in canonical form. The error wraps
// [Invalid], has a hint, and never contains the value.
func (s *Secret) Check() error {
	wrong := func(hint, why string, args ...any) error {
		return WithHint(Errorf(Invalid, "secret %.64q "+why, append([]any{s.Name}, args...)...), "%s", hint)
	}
	if len(s.Name) > maxSecretName || !secretName.MatchString(s.Name) {
		return wrong("use the name of an environment variable, such as API_KEY", "does not have a valid name")
	}
	if hosts, err := ParseSecretHosts(string(s.Hosts)); err != nil || hosts != s.Hosts {
		return wrong("write host names, like api.example.com or *.example.com", "has invalid hosts %q (%v)", string(s.Hosts), err)
	}
	if headers, err := ParseSecretHeaders(s.Headers...); err != nil || !slices.Equal(headers, s.Headers) {
		return wrong("write names of headers, like X-Api-Key", "has invalid headers %q (%v)", s.Headers, err)
	}
	value := s.Value.Reveal()
	switch {
	case len(value) < minSecretValue || len(value) > maxSecretValue:
		return wrong("check the file or the variable; a line end at its end does not count", "has %d characters, but must have %d to %d", len(value), minSecretValue, maxSecretValue)
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }):
		return wrong("encode the value as its host expects; a header is one line of text", "has control characters")
	}
	return nil
}
