package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/atomicfile"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// rulesFile is the name of the file with the hosts and the headers of a sandbox's
// header rules, without their values. The process after the next, which does not
// have the values, must know for which hosts they are lost.
const rulesFile = "rules"

// keepRules writes the header rules among secrets to the file in dir. If there are
// none, it adds those of the file, without values. It returns the secrets that the
// process must have.
func keepRules(dir string, secrets []sandbox.Secret) ([]sandbox.Secret, error) {
	if slices.ContainsFunc(secrets, func(s sandbox.Secret) bool { return s.Always }) {
		return secrets, writeRules(dir, secrets)
	}
	lost, err := readRules(dir)
	return append(slices.Clone(secrets), lost...), err
}

// writeRules writes the header rules among secrets to the file in dir, or removes
// the file if there are none.
func writeRules(dir string, secrets []sandbox.Secret) error {
	path := filepath.Join(dir, rulesFile)
	rules := slices.DeleteFunc(slices.Clone(secrets), func(s sandbox.Secret) bool { return !s.Always })
	if len(rules) == 0 {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("keep header rules: %w", err)
		}
		return nil
	}
	text, err := json.Marshal(rules) // which leaves the values out
	if err != nil {
		return fmt.Errorf("keep header rules: %w", err)
	}
	return atomicfile.Replace(path, text, 0o600)
}

// readRules returns the header rules of the file in dir, without values. It returns
// nil if there is no file.
func readRules(dir string) ([]sandbox.Secret, error) {
	text, err := os.ReadFile(filepath.Join(dir, rulesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var rules []sandbox.Secret
	if err == nil {
		err = json.Unmarshal(text, &rules)
	}
	if err != nil {
		return nil, fmt.Errorf("read header rules: %w", err)
	}
	return rules, nil
}

// Change puts another policy in force in the process in dir, and other header
// rules; nil keeps the rules. The error wraps [sandbox.Unavailable] if the process
// does not answer, [sandbox.Unsupported] if it cannot have header rules, and
// [sandbox.Internal] if it does not take the policy.
func Change(ctx context.Context, dir string, n sandbox.Network, rules []sandbox.Secret) error {
	before, err := readRules(dir)
	if err != nil {
		return err
	}
	req := request{Network: n}
	// A process without rules may be of an earlier version, which knows none.
	if len(rules)+len(before) > 0 && rules != nil {
		req.Rules, req.Ruled = rules, true
		for _, r := range rules {
			req.Values = append(req.Values, r.Value.Reveal())
		}
		if rep, err := ask(ctx, dir, request{After: math.MaxInt64 - 1}); err != nil {
			return err
		} else if !rep.Ruled {
			return sandbox.WithHint(sandbox.Errorf(sandbox.Unsupported, "rules: the network of this sandbox is of an earlier version, without header rules"),
				"make a new sandbox with rules")
		}
		// The file is first: a later process may refuse a host, but omits no header.
		if err := writeRules(dir, slices.Concat(before, rules)); err != nil {
			return err
		}
	}
	rep, err := ask(ctx, dir, req)
	switch {
	case err != nil:
	case rep.Err != "":
		err = sandbox.Errorf(rep.kind(), "change network: %s", rep.Err)
		if rep.Hint != "" {
			err = sandbox.WithHint(err, "%s", rep.Hint)
		}
	case rep.Network != n:
		err = sandbox.Errorf(sandbox.Internal, "change network: the process has the policy %q", rep.Network)
	}
	if !req.Ruled {
		return err
	}
	switch {
	case errors.Is(err, sandbox.Unavailable):
		// The process may have the new rules or the old: the file keeps both, so a later
		// process refuses a host rather than omitting a header.
		return err
	case err != nil:
		return errors.Join(err, writeRules(dir, before))
	}
	return writeRules(dir, rules)
}

// kind returns the kind of the error in a reply.
func (r *reply) kind() sandbox.Kind {
	if r.ErrKind == sandbox.Unsupported || r.ErrKind == sandbox.Exhausted {
		return r.ErrKind
	}
	return sandbox.Internal
}

// change puts the policy of a request, and its header rules, in force.
func (r *request) change(g *Gateway) error {
	if !r.Ruled {
		return g.Change(r.Network, nil)
	}
	if len(r.Values) != len(r.Rules) {
		return sandbox.Errorf(sandbox.Internal, "header rules without values")
	}
	rules := make([]sandbox.Secret, len(r.Rules))
	for i, rule := range r.Rules {
		rule.Value = sandbox.NewSecretValue(r.Values[i])
		rules[i] = rule
	}
	return g.Change(r.Network, rules)
}
