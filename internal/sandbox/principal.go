package sandbox

// A Principal is the identity of a caller: a token, an OAuth subject, or the
// local user. A principal owns the sandboxes, runs and workspaces that it made.
// For other principals they do not exist.
type Principal string

// Local is the principal of the command line and of MCP over stdio. A user who
// may start this program may use everything that it keeps.
const Local Principal = "local"

// TokenPrincipal returns the principal of the token with that name. A new token
// with the same name has the same principal, and so its sandboxes and workspaces.
func TokenPrincipal(name string) Principal { return Principal(TokenPrefix + name) }

// TokenPrefix begins the principal of every token.
const TokenPrefix = "token:"
