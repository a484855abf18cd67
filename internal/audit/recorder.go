package audit

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/auth"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Recorder records actions. A nil Recorder records nothing.
type Recorder struct {
	opts RecorderOptions

	mu   sync.Mutex
	seen map[string]*seen // by action, token and address; at most maxSeen
}

// RecorderOptions are the parameters of [NewRecorder]. Log and Slog are required.
type RecorderOptions struct {
	Log *Log
	// Required refuses actions that cannot be recorded. Each action then has a record
	// before it begins, and another one with its outcome.
	Required bool
	// Also, if not nil, gets each line after the Log has it, such as [Syslog].
	Also func(line []byte) error
	Slog *slog.Logger
	// Now is the clock; nil is [time.Now].
	Now func() time.Time
}

// NewRecorder returns a Recorder. It has no resources of its own.
func NewRecorder(o RecorderOptions) *Recorder {
	if o.Now == nil {
		o.Now = time.Now
	}
	return &Recorder{opts: o, seen: map[string]*seen{}}
}

// Do does an action and records it with its outcome. The identity and the address in
// ctx complete the record; do may complete its Sandbox, Run and Detail. If records are
// required and the Log cannot take one, Do does nothing, and the error wraps
// [sandbox.Unavailable].
func (r *Recorder) Do(ctx context.Context, rec Record, do func(*Record) error) error {
	if r == nil {
		return do(&rec)
	}
	rec = fromContext(ctx, rec)
	if r.opts.Required {
		begun := rec
		begun.Outcome = Begun
		if err := r.add(begun); err != nil {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "%s: the audit log cannot record it, and the operator requires a record", rec.Action),
				"the operator must free space on the disk of the audit log")
		}
	}
	err := do(&rec)
	rec.Outcome = outcome(err)
	r.note(rec)
	return err
}

// Note records an action that was done. A failure is only logged.
func (r *Recorder) Note(ctx context.Context, rec Record, err error) {
	if r == nil {
		return
	}
	rec = fromContext(ctx, rec)
	rec.Outcome = outcome(err)
	r.note(rec)
}

// outcome returns the outcome of an action that returned err.
func outcome(err error) string {
	switch {
	case err == nil:
		return OK
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "cancelled"
	default:
		return string(sandbox.KindOf(err))
	}
}

// fromContext adds the caller of ctx to a record.
func fromContext(ctx context.Context, rec Record) Record {
	if id, ok := auth.FromContext(ctx); ok {
		if rec.Principal == "" {
			rec.Principal = id.Principal
		}
		if rec.Principal == id.Principal {
			rec.Token = id.Token
		}
	}
	if rec.From == "" {
		rec.From = auth.Remote(ctx)
	}
	return rec
}

func (r *Recorder) note(rec Record) {
	if err := r.add(rec); err != nil {
		r.opts.Slog.Error("an action is not in the audit log", "action", rec.Action, "principal", rec.Principal,
			"sandbox", rec.Sandbox, "outcome", rec.Outcome, "error", err)
	}
}

func (r *Recorder) add(rec Record) error {
	line, err := r.opts.Log.Append(rec)
	if err == nil && r.opts.Also != nil {
		if err := r.opts.Also(line); err != nil {
			r.opts.Slog.Error("send audit record", "error", err)
		}
	}
	return err
}

// Periods in which actions of one kind, token and address have one record.
const (
	usePeriod    = time.Hour
	refusePeriod = time.Minute
	// maxSeen bounds the memory for them. Beyond it, addresses share one entry.
	maxSeen = 4096
)

// seen is the period that a kind of action is in.
type seen struct {
	since time.Time
	more  int // actions after the first
	rec   Record
}

// TokenVerified records the result of the check of a token, for [auth.Options]. Uses
// and refusals have one record in a period, with the number that it stands for, so
// that a client without a token cannot fill the disk.
func (r *Recorder) TokenVerified(ctx context.Context, id auth.Identity, err error) {
	if r == nil || errors.Is(err, context.Canceled) || errors.Is(err, sandbox.Unavailable) {
		return
	}
	rec := Record{Action: TokenUse, Principal: id.Principal, Token: id.Token, From: auth.Remote(ctx), Outcome: outcome(err)}
	period := usePeriod
	if err != nil {
		rec.Action, period = TokenRefuse, refusePeriod
	}
	key := string(rec.Action) + "\x00" + string(id.Principal) + "\x00" + id.Token + "\x00" + string(fair.AddressOf(rec.From))
	for _, rec := range r.count(key, rec, period) {
		r.note(rec)
	}
}

// count adds an action to its period, and returns the records to write: the first of
// a period, and before it the number of the period before.
func (r *Recorder) count(key string, rec Record, period time.Duration) []Record {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.opts.Now()
	if s := r.seen[key]; s != nil && now.Sub(s.since) < period {
		s.more++
		return nil
	}
	var due []Record
	if len(r.seen) >= maxSeen {
		due = r.expireLocked(now)
		if len(r.seen) >= maxSeen && r.seen[key] == nil {
			key = string(rec.Action)
			rec.From = "(many addresses)"
			if s := r.seen[key]; s != nil && now.Sub(s.since) < period {
				s.more++
				return due
			}
		}
	}
	if s := r.seen[key]; s != nil {
		due = append(due, s.rest()...)
	}
	r.seen[key] = &seen{since: now, rec: rec}
	return append(due, rec)
}

// rest returns the record of a period's actions after the first, if there are any.
func (s *seen) rest() []Record {
	if s.more == 0 {
		return nil
	}
	rec := s.rec
	rec.Detail = map[string]string{"more": strconv.Itoa(s.more), "since": s.since.UTC().Format(time.RFC3339)}
	s.more = 0
	return []Record{rec}
}

func (r *Recorder) expireLocked(now time.Time) (due []Record) {
	for key, s := range r.seen {
		period := usePeriod
		if s.rec.Action == TokenRefuse {
			period = refusePeriod
		}
		if now.Sub(s.since) >= period {
			due = append(due, s.rest()...)
			delete(r.seen, key)
		}
	}
	return due
}

// Flush writes the counts of the periods that go on. The owner calls it before the
// Log is closed.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.mu.Lock()
	var due []Record
	for _, s := range r.seen {
		due = append(due, s.rest()...)
	}
	r.mu.Unlock()
	for _, rec := range due {
		r.note(rec)
	}
}
