// Package network is a sandbox's only way out: a TCP/IP stack in user space
// that a policy decides for, packet by packet, without privilege and without
// trusting anything on the sandbox's side.
//
// A [Gateway] owns the policy and what goes with it: the DNS server that the
// sandbox has, the addresses that its answers gave, the connections that are
// open, and what is counted and remembered of them. [Gateway.Attach] puts it at
// the other end of a sandbox's link. Its lifecycle is New, Attach, Close.
//
// A Gateway lives in a process of its own, one for each sandbox, which [Main]
// is the main function of and [Start] starts: what comes from a sandbox is
// parsed there, so that whatever it does to the parser, it does to nobody else;
// and the process lives as long as its link, whatever becomes of the server.
//
// How a connection is decided: by its address and port, if a rule names a range
// or everything public; else by the names that the sandbox's own questions gave
// that address. Then the bytes are looked at as well: the server name of TLS
// and the host of each HTTP request must be one of those names, and what hides
// them does not pass. Names that are not allowed are never asked for upstream.
//
// Secrets are put into the headers of requests to their hosts: for a connection
// to one of those, and no other, the gateway ends the sandbox's TLS by a
// certificate of an authority that this one sandbox trusts, and begins its own
// with the host, whose certificate must be good.
//
// Drivers import this package. Besides sandbox it imports gVisor's network
// stack.
package network
