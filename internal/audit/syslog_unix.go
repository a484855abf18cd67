//go:build unix

package audit

import (
	"log/syslog"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Syslog connects to the machine's system log. The returned function sends a line to
// it with the facility auth and the name glovebox, and closing ends the connection.
// The error wraps [sandbox.Unavailable] if there is no system log.
func Syslog() (send func(line []byte) error, closing func() error, err error) {
	w, err := syslog.New(syslog.LOG_AUTH|syslog.LOG_INFO, "glovebox")
	if err != nil {
		return nil, nil, sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "audit.syslog: %w", err),
			"start a system log on this machine, or set audit.syslog to false")
	}
	return func(line []byte) error {
		_, err := w.Write(line)
		return err
	}, w.Close, nil
}
