package sandbox

import "time"

// A Token is a bearer token as its owner and the operator see it. The token's
// text is not part of it: only its SHA-256 is kept, beside it, in the store.
type Token struct {
	ID        string    `json:"token_id"`
	Name      string    `json:"name"`
	Principal Principal `json:"principal"`
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
