package cli

import (
	"strings"

	"github.com/glovebox-dev/glovebox/internal/cli/console"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// secretFlags are the secrets of --secret, --secret-host and --secret-header.
// The order of the flags says which belong together.
type secretFlags []config.Secret

// secretFlag is the value of --secret.
type secretFlag struct{ to *secretFlags }

func (secretFlag) Type() string   { return "NAME[=VALUE]" }
func (secretFlag) String() string { return "" }

// Set adds a secret: NAME, NAME=@FILE or NAME=VALUE.
func (f secretFlag) Set(text string) error {
	name, value, given := strings.Cut(text, "=")
	s := config.Secret{Name: name}
	if file, ok := strings.CutPrefix(value, "@"); ok {
		if file == "" {
			return console.UsageError("%.64q has no file name after @", name)
		}
		s.File = file
	} else if given {
		v := sandbox.NewSecretValue(value)
		s.Value = &v
	}
	*f.to = append(*f.to, s)
	return nil
}

// hostFlag is the value of --secret-host.
type hostFlag struct{ to *secretFlags }

func (hostFlag) Type() string   { return "HOST" }
func (hostFlag) String() string { return "" }

// Set adds hosts to the last secret.
func (f hostFlag) Set(text string) error {
	s, err := f.to.last()
	if err == nil {
		s.Hosts = append(s.Hosts, text)
	}
	return err
}

// headerFlag is the value of --secret-header.
type headerFlag struct{ to *secretFlags }

func (headerFlag) Type() string   { return "NAME" }
func (headerFlag) String() string { return "" }

// Set adds headers to the last secret.
func (f headerFlag) Set(text string) error {
	s, err := f.to.last()
	if err == nil {
		s.Headers = append(s.Headers, text)
	}
	return err
}

// last returns the last secret.
func (f *secretFlags) last() (*config.Secret, error) {
	if len(*f) == 0 {
		return nil, console.UsageError("there is no --secret before this flag")
	}
	return &(*f)[len(*f)-1], nil
}
