package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A Run is the record of one run.
type Run struct {
	sandbox.Run
	Principal sandbox.Principal
	// Timeout is the time that the run may take, from Started on.
	Timeout time.Duration
	// Terminal means that the run has a terminal, and KeepsStdin that its input
	// stays open.
	Terminal, KeepsStdin bool
	// StopRequested means that the run's owner asked for its end.
	StopRequested bool
	// Language is the language of the run's code, "" for a command. Program is the
	// beginning of the code or of the command; lists of runs leave it out.
	// ProgramBytes is its full size.
	Language     string
	Program      string
	ProgramBytes int64
	// StdoutBytes and StderrBytes count all output of the run. KeptBytes is the
	// size of its log. They are set when the run has finished.
	StdoutBytes, StderrBytes, KeptBytes int64
	// Key is the key of a run that begins, or nil. It is not read back.
	Key *sandbox.RunKey
	// Keeping is for the process that continues a service.
	Keeping Keeping
	// Undo is the internal snapshot that the run's sandbox returns to if the run fails,
	// or "".
	Undo string
}

// Keeping is the part of a service's record that its owner does not see.
type Keeping struct {
	// Check tells when the service is ready, and IsReady that it has been so.
	Check   *sandbox.ReadyCheck `json:"check,omitempty"`
	IsReady bool                `json:"is_ready,omitempty"`
	// Stdout and Stderr count the output before the last start of the program.
	Stdout int64 `json:"stdout,omitempty"`
	Stderr int64 `json:"stderr,omitempty"`
	// Key seals the file in the sandbox that has what starts the program again.
	Key []byte `json:"key,omitempty"`
}

const (
	insertRunSQL = `INSERT INTO runs (id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin, context, language, program, program_bytes, service, undo)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	finishRunSQL = `UPDATE runs SET ended_at = ?, verdict = ?, cause = ?, next_step = ?, exit_code = ?,
		cpu_ms = ?, peak_memory = ?, stdout_bytes = ?, stderr_bytes = ?, kept_bytes = ?, context = ?, changes = ?, network = ?, service = ?, rollback = ?
		WHERE id = ? AND ended_at = 0`

	// runColumns are all columns but the program, which a list leaves out.
	runColumns = `id, sandbox_id, principal, started_at, timeout, terminal, keeps_stdin, stop_requested,
		ended_at, verdict, cause, next_step, exit_code, cpu_ms, peak_memory, stdout_bytes, stderr_bytes, kept_bytes, context, changes, network,
		language, program_bytes, service, undo, rollback`

	selectRunSQL = `SELECT ` + runColumns + `, program FROM runs`

	// listRunsSQL reads runs without their programs.
	listRunsSQL = `SELECT ` + runColumns + `, '' FROM runs`
)

func scanRun(scan scanFunc) (Run, error) {
	var (
		r              Run
		started, ended int64
		exit           sql.NullInt64
		inContext      string
		changes        string
		network        string
		service        string
		rollback       string
	)
	err := scan(&r.ID, &r.SandboxID, &r.Principal, &started, &r.Timeout, &r.Terminal, &r.KeepsStdin, &r.StopRequested,
		&ended, &r.Verdict.Code, &r.Verdict.Cause, &r.Verdict.NextStep, &exit, &r.Usage.CPUMillis,
		&r.Usage.PeakMemoryBytes, &r.StdoutBytes, &r.StderrBytes, &r.KeptBytes, &inContext, &changes, &network,
		&r.Language, &r.ProgramBytes, &service, &r.Undo, &rollback, &r.Program)
	if err == nil && network != "" {
		err = json.Unmarshal([]byte(network), &r.Network)
	}
	if err == nil && inContext != "" {
		err = json.Unmarshal([]byte(inContext), &r.Context)
	}
	if err == nil && changes != "" {
		err = json.Unmarshal([]byte(changes), &r.Changes)
	}
	if err == nil && rollback != "" {
		err = json.Unmarshal([]byte(rollback), &r.Rollback)
	}
	if err == nil {
		err = r.scanService(service)
	}
	if err != nil {
		return Run{}, err
	}
	r.Started, r.Ended = fromMicros(started), fromMicros(ended)
	r.Status = sandbox.RunRunning
	if ended != 0 {
		r.Status = sandbox.RunFinished
		if r.Service != nil {
			r.Service.State = sandbox.ServiceEnded // the end of its sandbox may have ended it
		}
	}
	if exit.Valid {
		code := int(exit.Int64)
		r.ExitCode = &code
	}
	return r, nil
}

// contextOf returns a run's context as the table stores it.
func contextOf(r Run) (string, error) {
	if r.Context == nil {
		return "", nil
	}
	b, err := json.Marshal(r.Context)
	return string(b), err
}

// A serviceText is a service as the table stores it.
type serviceText struct {
	sandbox.Service
	Keeping Keeping `json:"keeping,omitzero"`
}

func serviceOf(r Run) (string, error) {
	if r.Service == nil {
		return "", nil
	}
	b, err := json.Marshal(serviceText{*r.Service, r.Keeping})
	return string(b), err
}

func (r *Run) scanService(text string) error {
	if text == "" {
		return nil
	}
	var s serviceText
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	r.Service, r.Keeping = &s.Service, s.Keeping
	return nil
}

// SetService records the state of a service whose run has not ended.
func (s *Store) SetService(ctx context.Context, r Run) error {
	text, err := serviceOf(r)
	if err == nil {
		_, err = s.exec(ctx, `UPDATE runs SET service = ? WHERE id = ? AND ended_at = 0`, text, r.ID)
	}
	return sandbox.Wrap(err, "store service", r.ID)
}

// InsertRun adds the record of a run that begins, and records the use of its
// sandbox and its key. It fails if there is no such sandbox. The error is of kind
// Conflict if another run has the key.
func (s *Store) InsertRun(ctx context.Context, r Run) error {
	inContext, err := contextOf(r)
	if err != nil {
		return sandbox.Wrap(err, "store run", r.ID)
	}
	service, err := serviceOf(r)
	if err != nil {
		return sandbox.Wrap(err, "store run", r.ID)
	}
	err = s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.StmtContext(ctx, s.insertRun).ExecContext(ctx, r.ID, r.SandboxID, r.Principal, micros(r.Started),
			int64(r.Timeout), r.Terminal, r.KeepsStdin, inContext, r.Language, r.Program, r.ProgramBytes, service, r.Undo)
		if err != nil {
			return err
		}
		if _, err = tx.StmtContext(ctx, s.touch).ExecContext(ctx, micros(r.Started), r.SandboxID); err != nil || r.Key == nil {
			return err
		}
		return s.putKey(ctx, tx, r)
	})
	return sandbox.Wrap(err, "store run", r.ID)
}

// FinishRun records how a run ended, counts its usage, and records the use of its
// sandbox. It reports false, and leaves the run unchanged, if the run had ended before.
func (s *Store) FinishRun(ctx context.Context, r Run) (bool, error) {
	var exit sql.NullInt64
	if r.ExitCode != nil {
		exit = sql.NullInt64{Int64: int64(*r.ExitCode), Valid: true}
	}
	inContext, err := contextOf(r)
	if err != nil {
		return false, sandbox.Wrap(err, "store run", r.ID)
	}
	changes := ""
	if r.Changes != nil {
		b, err := json.Marshal(r.Changes)
		if err != nil {
			return false, sandbox.Wrap(err, "store run", r.ID)
		}
		changes = string(b)
	}
	network := ""
	if r.Network != nil {
		text, err := json.Marshal(r.Network)
		if err != nil {
			return false, sandbox.Wrap(err, "store run", r.ID)
		}
		network = string(text)
	}
	rollback := ""
	if r.Rollback != nil {
		text, err := json.Marshal(r.Rollback)
		if err != nil {
			return false, sandbox.Wrap(err, "store run", r.ID)
		}
		rollback = string(text)
	}
	service, err := serviceOf(r)
	if err != nil {
		return false, sandbox.Wrap(err, "store run", r.ID)
	}
	var finished bool
	err = s.meter(ctx, func(m *metering) error {
		tx := m.tx
		res, err := tx.StmtContext(ctx, s.finishRun).ExecContext(ctx, micros(r.Ended), r.Verdict.Code, r.Verdict.Cause,
			r.Verdict.NextStep, exit, r.Usage.CPUMillis, r.Usage.PeakMemoryBytes, r.StdoutBytes, r.StderrBytes, r.KeptBytes,
			inContext, changes, network, service, rollback, r.ID)
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		finished = n == 1
		_, err = tx.StmtContext(ctx, s.touch).ExecContext(ctx, micros(r.Ended), r.SandboxID)
		if err != nil || !finished {
			return err
		}
		return m.ended(ctx, r.SandboxID, r.Started, r.Ended, r.Usage.CPUMillis)
	})
	return finished && err == nil, sandbox.Wrap(err, "store run", r.ID)
}

// Run returns the record of one run, or an error of kind NotFound.
func (s *Store) Run(ctx context.Context, id string) (Run, error) {
	r, err := scanRun(s.getRun.QueryRowContext(ctx, id).Scan)
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, sandbox.Errorf(sandbox.NotFound, "no run %s", id)
	}
	return r, sandbox.Wrap(err, "read run", id)
}

// Runs returns the records of a sandbox's runs, oldest first.
func (s *Store) Runs(ctx context.Context, sandboxID string) ([]Run, error) {
	return s.runs(ctx, ` WHERE sandbox_id = ? ORDER BY started_at, id`, sandboxID)
}

// RunningRuns returns the records of a sandbox's runs that have not ended.
func (s *Store) RunningRuns(ctx context.Context, sandboxID string) ([]Run, error) {
	return s.runs(ctx, ` WHERE sandbox_id = ? AND ended_at = 0 ORDER BY started_at, id`, sandboxID)
}

// RunsEndedBefore returns the runs that ended before t.
func (s *Store) RunsEndedBefore(ctx context.Context, t time.Time) ([]Run, error) {
	return s.runs(ctx, ` WHERE ended_at != 0 AND ended_at < ?`, micros(t))
}

// A KeptLog is the log of a run that has ended. Bytes counts its files, and the program in
// the record.
type KeptLog struct {
	ID, SandboxID string
	Principal     sandbox.Principal
	Bytes         int64
}

// KeptLogs returns the logs of the runs that have ended, in the order of their ends.
func (s *Store) KeptLogs(ctx context.Context) ([]KeptLog, error) {
	var list []KeptLog
	const query = `SELECT id, sandbox_id, principal, kept_bytes + length(CAST(program AS BLOB)) FROM runs WHERE ended_at != 0 ORDER BY ended_at, id`
	err := collect(ctx, s.read, query, nil, func(scan scanFunc) error {
		var l KeptLog
		err := scan(&l.ID, &l.SandboxID, &l.Principal, &l.Bytes)
		list = append(list, l)
		return err
	})
	return list, sandbox.Wrap(err, "list logs", "")
}

// runs returns records of runs without their programs.
func (s *Store) runs(ctx context.Context, where string, args ...any) ([]Run, error) {
	return s.list(ctx, listRunsSQL+where, args)
}

func (s *Store) list(ctx context.Context, query string, args []any) ([]Run, error) {
	var list []Run
	err := collect(ctx, s.read, query, args, func(scan scanFunc) error {
		r, err := scanRun(scan)
		list = append(list, r)
		return err
	})
	return list, sandbox.Wrap(err, "list runs", "")
}

// RequestRunStop records that the end of a run was requested. The process that
// settles the run's verdict reads it.
func (s *Store) RequestRunStop(ctx context.Context, id string) error {
	_, err := s.exec(ctx, `UPDATE runs SET stop_requested = 1 WHERE id = ? AND ended_at = 0`, id)
	return sandbox.Wrap(err, "store run", id)
}

// DeleteRun removes the record of a run. If the run has not ended, it did not begin,
// and its key is free again.
func (s *Store) DeleteRun(ctx context.Context, id string) error {
	err := s.tx(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM run_keys WHERE run_id IN (SELECT id FROM runs WHERE id = ? AND ended_at = 0)`, id)
		if err == nil {
			_, err = tx.ExecContext(ctx, `DELETE FROM runs WHERE id = ?`, id)
		}
		return err
	})
	return sandbox.Wrap(err, "delete run", id)
}
