package sandbox

import "time"

// A Token lets its bearer act as a principal. Only the SHA-256 of its text is
// stored. A plain hash is enough because tokens are random.
type Token struct {
	ID        string    `json:"token_id"`
	Name      string    `json:"name"` // for people
	Principal Principal `json:"principal"`
	Hash      [32]byte  `json:"-"`
	// Scopes are the permissions of the token, such as "run".
	Scopes      []string  `json:"scopes"`
	Description string    `json:"description,omitempty"` // for people
	Created     time.Time `json:"created_at"`
	// Expires is the end of the token; zero is never.
	Expires time.Time `json:"expires_at,omitzero"`
	// Used is when the token was last accepted, to about a minute; zero is never.
	Used time.Time `json:"last_used_at,omitzero"`
	// Revoked is when the token was revoked; zero means it is valid.
	Revoked time.Time `json:"revoked_at,omitzero"`
	// Rotated is when the text of the token was last replaced; zero is never.
	Rotated   time.Time `json:"rotated_at,omitzero"`
	Rotations int       `json:"-"`
	// PreviousUntil is until when the text of before the last rotation is valid, too.
	PreviousUntil time.Time `json:"previous_valid_until,omitzero"`
}

// InForce reports whether the token is neither revoked nor expired.
func (t Token) InForce(now time.Time) bool {
	return t.Revoked.IsZero() && (t.Expires.IsZero() || now.Before(t.Expires))
}

// TokenIDPrefix begins the identifiers of tokens.
const TokenIDPrefix = "tok_"

// NewTokenID returns a new token identifier. It is not the token itself.
func NewTokenID() string { return TokenIDPrefix + randomText() }
