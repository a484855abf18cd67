package guestapi

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// PathLease takes the terms of the sandbox's lease, as [LeaseRequest]; the reply is
// a [LeaseReply]. Only a guest that was started for leases has it. It is ours,
// beyond E2B's protocol.
const PathLease = "/lease"

// LeaseTerms say when a guest ends that hears of no holder any more. All times
// begin when the guest receives the terms, because its clock may differ.
type LeaseTerms struct {
	// Hold is how long the caller holds the sandbox without other terms. The guest
	// does not end before.
	Hold time.Duration `json:"hold"`
	// Idle is how long the guest stays after the hold is over. Busy extends that
	// time. End bounds both.
	Idle time.Duration `json:"idle"`
	Busy time.Duration `json:"busy"`
	End  time.Duration `json:"end"`
}

// maxTerm bounds each time of terms, so that sums of two do not overflow.
const maxTerm = 100 * 365 * 24 * time.Hour

// Left returns how long the guest has under these terms, if it hears of no others.
func (t LeaseTerms) Left() time.Duration {
	bound := func(d time.Duration) time.Duration { return min(max(d, 0), maxTerm) }
	hold := bound(t.Hold)
	return max(hold, min(bound(t.End), max(hold+bound(t.Idle), bound(t.Busy))))
}

// A LeaseRequest asks for a challenge, or sets terms. The first request that sets
// terms brings the key, and needs no seal. Later terms are sealed with that key:
// root of the sandbox reaches the guest too, but must not set terms.
type LeaseRequest struct {
	Key []byte `json:"key,omitempty"`
	// Terms is the JSON text of [LeaseTerms]; empty asks for a challenge.
	Terms []byte `json:"terms,omitempty"`
	// Seal is [SealLease] of the guest's last challenge and of Terms.
	Seal []byte `json:"seal,omitempty"`
}

// A LeaseReply has the challenge for the next terms. It is good for one request,
// within [ChallengeTime].
type LeaseReply struct {
	Challenge []byte `json:"challenge"`
}

// UnmarshalJSON refuses a reply that is longer than any of a guest of ours.
func (r *LeaseReply) UnmarshalJSON(b []byte) error {
	if len(b) > 1<<10 {
		return errors.New("the reply to a lease is too long")
	}
	type plain LeaseReply
	return json.Unmarshal(b, (*plain)(r))
}

const (
	// LeaseKeyBytes and ChallengeBytes are the sizes of a key and of a challenge.
	LeaseKeyBytes, ChallengeBytes = 32, 16
	// ChallengeTime bounds the delay between a challenge and its terms. A program
	// that sits between a server and the guest can hold terms back that long.
	ChallengeTime = 10 * time.Second
)

// SealLease proves that terms come from a holder of the key.
func SealLease(key, challenge, terms []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(challenge)
	h.Write(terms)
	return h.Sum(nil)
}

// NewLeaseKey returns a random key.
func NewLeaseKey() []byte {
	key := make([]byte, LeaseKeyBytes)
	rand.Read(key)
	return key
}

// BeginLease gives the guest its key, with its first terms. The error is of kind
// Conflict if the guest has a key already, and Unsupported if it takes no leases.
func (c *Client) BeginLease(ctx context.Context, key []byte, t LeaseTerms) error {
	const op = "begin lease"
	terms, err := json.Marshal(t)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, op+": %w", err)
	}
	return c.call(ctx, op, PathLease, sandbox.Root, &LeaseRequest{Key: key, Terms: terms}, nil)
}

// SetLease replaces the terms of the lease. The error is of kind Unauthenticated if
// the guest has another key, and Unsupported if it takes no leases.
func (c *Client) SetLease(ctx context.Context, key []byte, t LeaseTerms) error {
	const op = "set lease"
	terms, err := json.Marshal(t)
	if err != nil {
		return sandbox.Errorf(sandbox.Internal, op+": %w", err)
	}
	var next LeaseReply
	if err := c.call(ctx, op, PathLease, sandbox.Root, &LeaseRequest{}, &next); err != nil {
		return err
	}
	// The seal is over the challenge and the terms together, without their lengths.
	if len(next.Challenge) != ChallengeBytes {
		return lost(ctx, op, errors.New("the reply has no challenge"))
	}
	return c.call(ctx, op, PathLease, sandbox.Root, &LeaseRequest{Terms: terms, Seal: SealLease(key, next.Challenge, terms)}, nil)
}
