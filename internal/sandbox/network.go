package sandbox

// A Network says what a sandbox may reach.
type Network string

// NetworkNone is a sandbox with no interface beyond its own loopback. It is
// the default.
const NetworkNone Network = "none"
