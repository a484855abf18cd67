package sandbox

import "time"

// A Grant is the permission that a person gave an OAuth client. The person signed
// in with a token, and the grant ends with that token.
type Grant struct {
	ID string `json:"grant_id"`
	// TokenID is the token with which the person signed in, and Principal is its
	// principal.
	TokenID   string    `json:"token_id"`
	Principal Principal `json:"principal"`
	// ClientID and ClientName are the client's. The client chose the name.
	ClientID   string    `json:"client_id"`
	ClientName string    `json:"client_name"`
	Scopes     []string  `json:"scopes"`
	Created    time.Time `json:"created_at"`
	// Used is when the client last got an access token.
	Used time.Time `json:"last_used_at"`
	// Expires is when the grant ends, unless the client gets an access token
	// before.
	Expires time.Time `json:"expires_at"`
}

// A GrantToken is an access token or a refresh token of a grant. Its text is not
// stored.
type GrantToken struct {
	Hash    [32]byte
	Refresh bool
	Expires time.Time
	// Replaced is when the client exchanged the refresh token; zero is never.
	Replaced time.Time
}

// An OAuthClient is a program that registered itself, to ask people for grants.
type OAuthClient struct {
	ID           string    `json:"client_id"`
	Name         string    `json:"client_name"`
	RedirectURIs []string  `json:"redirect_uris"`
	Created      time.Time `json:"created_at"`
}

// GrantIDPrefix begins the identifiers of grants.
const GrantIDPrefix = "grt_"

// NewGrantID returns a new grant identifier.
func NewGrantID() string { return GrantIDPrefix + randomText() }

// NewOAuthClientID returns a new client identifier.
func NewOAuthClientID() string { return "cli_" + randomText() }
