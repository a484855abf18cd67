package config

import (
	"bytes"
	"io"
	"os"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Secret is a secret that programs can use but not read; see [sandbox.Secret].
type Secret struct {
	// Name is the environment variable with the placeholder, for programs in the
	// sandbox.
	Name string `yaml:"name"`
	// Hosts are the hosts that may receive the secret, in the syntax of
	// [sandbox.ParseSecretHosts].
	Hosts []string `yaml:"hosts"`
	// Headers are the request headers that may contain the secret, in the syntax
	// of [sandbox.ParseSecretHeaders]. Empty is [sandbox.DefaultSecretHeaders].
	Headers []string `yaml:"headers"`
	// Env is the variable of this program's environment that holds the secret,
	// or File the file. Without either, it is the variable Name.
	Env  string `yaml:"env"`
	File string `yaml:"file"`
	// Principals are the principals whose sandboxes use it; empty is all.
	Principals []string `yaml:"principals"`
	// Value is the secret, if it is already known.
	Value *sandbox.SecretValue `yaml:"-"`
}

// validate checks everything but the secret's value.
func (s *Secret) validate() error {
	_, err := s.hosts()
	if err == nil {
		_, err = s.headers()
	}
	if err == nil && s.Env != "" && s.File != "" {
		err = sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %q has both env and file", s.Name), "remove one of them")
	}
	return err
}

func (s *Secret) hosts() (sandbox.Network, error) {
	hosts, err := sandbox.ParseSecretHosts(s.Hosts...)
	if err != nil {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %q: %w", s.Name, err), "%s", sandbox.HintOf(err))
	}
	return hosts, nil
}

func (s *Secret) headers() ([]string, error) {
	headers, err := sandbox.ParseSecretHeaders(s.Headers...)
	if err != nil {
		return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %q: headers: %w", s.Name, err), "%s", sandbox.HintOf(err))
	}
	return headers, nil
}

// maxSecretFile bounds the bytes that are read of a secret's file.
const maxSecretFile = 64 << 10

// OpenSecrets returns the secrets with their values. Errors name the secret but
// never contain its value.
func (c *Config) OpenSecrets() ([]sandbox.Secret, error) {
	var list []sandbox.Secret
	for _, s := range c.Secrets {
		hosts, err := s.hosts()
		if err != nil {
			return nil, err
		}
		headers, err := s.headers()
		if err != nil {
			return nil, err
		}
		open := sandbox.Secret{Name: s.Name, Hosts: hosts, Headers: headers}
		for _, p := range s.Principals {
			open.Principals = append(open.Principals, sandbox.Principal(p))
		}
		switch {
		case s.File != "":
			text, err := readSecret(s.File)
			if err != nil {
				return nil, sandbox.Errorf(sandbox.Invalid, "secret %q: %w", s.Name, err)
			}
			open.Value = sandbox.NewSecretValue(text)
		case s.Value == nil:
			return nil, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "secret %q: the environment has no variable %s", s.Name, s.variable()),
				"set it, or name a file with the secret: --secret %s=@FILE", s.Name)
		default:
			open.Value = *s.Value
		}
		list = append(list, open)
	}
	return list, sandbox.CheckSecrets(list)
}

func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSecretFile))
	if err != nil {
		return "", err
	}
	return string(bytes.TrimRight(text, "\r\n")), nil
}

func (s *Secret) variable() string {
	if s.Env != "" {
		return s.Env
	}
	return s.Name
}

// Resolve reads the secret from the environment, unless it is in a file or
// known.
func (s *Secret) Resolve(getenv func(string) string) {
	if s.File != "" || s.Value != nil {
		s.File = homePath(s.File, getenv)
		return
	}
	if text := getenv(s.variable()); text != "" {
		v := sandbox.NewSecretValue(text)
		s.Value = &v
	}
}
