package sandbox

import "time"

// A Token lets its bearer act as a principal. Only the SHA-256 of its text is
// stored. A plain hash is enough because tokens are random.
type Token struct {
	ID        string    `json:"token_id"`
	Name      string    `json:"name"` // for people
	Principal Principal `json:"principal"`
	Hash      [32]byte  `json:"-"`
	// Scopes are the permissions of the token: "run", "files", "admin".
	Scopes  []string  `json:"scopes"`
	Created time.Time `json:"created_at"`
	// Used is when the token was last accepted, to about a minute; zero is never.
	Used time.Time `json:"last_used_at,omitzero"`
	// Revoked is when the token was revoked; zero means it is valid.
	Revoked time.Time `json:"revoked_at,omitzero"`
}

// TokenIDPrefix begins the identifiers of tokens.
const TokenIDPrefix = "tok_"

// NewTokenID returns a new token identifier. It is not the token itself.
func NewTokenID() string { return TokenIDPrefix + randomText() }
