package audit

import "github.com/glovebox-dev/glovebox/internal/sandbox"

// Syslog returns an error: Windows has no system log of that protocol.
func Syslog() (send func(line []byte) error, closing func() error, err error) {
	return nil, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "audit.syslog: Windows has no syslog"), "set audit.syslog to false")
}
