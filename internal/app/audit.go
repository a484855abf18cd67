package app

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/glovebox-dev/glovebox/internal/audit"
	"github.com/glovebox-dev/glovebox/internal/config"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// AuditDir returns the directory of the audit log.
func AuditDir(c config.Config) string {
	if c.Audit.Dir != "" {
		return c.Audit.Dir
	}
	return filepath.Join(c.StateDir, "audit")
}

// openAudit opens the audit log, if it is enabled. The caller must call closing when
// no action can follow.
func openAudit(c config.Config, log *slog.Logger) (_ *audit.Recorder, closing func() error, err error) {
	if !c.Audit.Enabled {
		return nil, func() error { return nil }, nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	o := audit.RecorderOptions{Required: c.Audit.Required, Slog: log}
	end := func() error { return nil }
	if c.Audit.Syslog {
		if o.Also, end, err = audit.Syslog(); err != nil {
			return nil, nil, err
		}
	}
	o.Log, err = audit.Open(audit.Options{
		Dir: AuditDir(c), FileSize: int64(c.Audit.FileSize), Keep: c.Audit.Keep, Sync: c.Audit.Required, Log: log,
	})
	if err != nil {
		return nil, nil, errors.Join(err, end())
	}
	r := audit.NewRecorder(o)
	return r, func() error {
		r.Flush()
		return errors.Join(o.Log.Close(), end())
	}, nil
}

// auditedConnections returns the function that records refused connections, and the
// first use of each secret by each sandbox.
func auditedConnections(r *audit.Recorder, secrets []sandbox.Secret) func(sandbox.Principal, string, sandbox.Connection) {
	if r == nil {
		return nil
	}
	u := &uses{seen: map[use]bool{}}
	return func(p sandbox.Principal, id string, c sandbox.Connection) {
		ctx := context.Background()
		detail := map[string]string{"protocol": string(c.Protocol), "host": c.Host, "port": strconv.Itoa(int(c.Port))}
		if c.Address.IsValid() {
			detail["address"] = c.Address.String()
		}
		if c.Blocked != "" {
			detail["reason"] = string(c.Blocked)
			r.Note(ctx, audit.Record{Action: audit.NetworkRefuse, Principal: p, Sandbox: id, Detail: detail}, sandbox.Errorf(sandbox.Forbidden, "blocked"))
			return
		}
		for i := range secrets {
			s := &secrets[i]
			if c.Protocol == sandbox.ProtocolTCP && s.UsedBy(p) && s.IsFor(c.Host, c.Port) && u.first(use{id, s.Name}) {
				r.Note(ctx, audit.Record{Action: audit.SecretUse, Principal: p, Sandbox: id, Detail: map[string]string{"secret": s.Name, "host": c.Host}}, nil)
			}
		}
	}
}

// A use is the use of a secret by a sandbox.
type use struct{ sandbox, secret string }

// maxUses bounds the memory of uses. Beyond it, a use may have several records.
const maxUses = 100_000

// uses are the uses that have a record.
type uses struct {
	mu   sync.Mutex
	seen map[use]bool
}

// first adds a use, and reports whether it is new.
func (u *uses) first(of use) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen[of] {
		return false
	}
	if len(u.seen) >= maxUses {
		clear(u.seen)
	}
	u.seen[of] = true
	return true
}
