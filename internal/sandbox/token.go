package sandbox

import "time"

// A Token lets its bearer act as a principal. Its text is not kept, only the
// SHA-256 of it, which is enough because tokens are random.
type Token struct {
	ID        string    `json:"token_id"`
	Name      string    `json:"name"` // for people
	Principal Principal `json:"principal"`
	Hash      [32]byte  `json:"-"`
	// Scopes are what the token may be used for: "run", "files", "admin".
	Scopes  []string  `json:"scopes"`
	Created time.Time `json:"created_at"`
	// Used is when it was last accepted, to about a minute; zero is never.
	Used time.Time `json:"last_used_at,omitzero"`
	// Revoked is when it stopped being accepted; zero is not.
	Revoked time.Time `json:"revoked_at,omitzero"`
}

// TokenIDPrefix begins the identifiers of tokens.
const TokenIDPrefix = "tok_"

// NewTokenID returns a fresh token identifier. It names a token; it is not one.
func NewTokenID() string { return TokenIDPrefix + randomText() }
