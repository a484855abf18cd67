package sandbox

// A Principal is who is asking: a token, an OAuth subject, or the local user.
// Sandboxes, runs and workspaces belong to the principal that made them; to
// any other they do not exist.
type Principal string

// Local is the principal of the command line and of MCP over stdio: whoever
// may start this program may use what it keeps.
const Local Principal = "local"
