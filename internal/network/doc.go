// Package network is a sandbox's only access to a network: a TCP/IP stack in user
// space. A policy decides about each connection. The package needs no privilege
// and trusts nothing from the sandbox.
//
// A [Gateway] owns the policy and its state: the sandbox's DNS server, the
// addresses in its answers, the open connections, and their counts and records.
// [Gateway.Attach] connects the gateway to the other end of a sandbox's link. Its
// lifecycle is New, Attach, Close.
//
// Each sandbox has its own gateway, in its own process. [Start] starts the
// process, and [Main] is its main function. The process parses untrusted bytes,
// so an exploit of a parser reaches only this process. It lives as long as its
// link, even if the server ends.
//
// A rule with a range or with all public addresses allows a connection by address
// and port. Otherwise the names count that the sandbox's own DNS questions gave
// this address. The gateway then also inspects the bytes: the TLS server name and
// the host of each HTTP request must be one of these names. Protocols that hide
// the name are blocked. The gateway never asks upstream for names that are not
// allowed.
//
// The gateway puts secrets into headers of requests to their hosts. It terminates
// the sandbox's TLS only for connections to these hosts. The certificate comes
// from an authority that only this sandbox trusts. The gateway then opens its own
// TLS connection to the host, whose certificate must be valid. Header rules are
// secrets of one sandbox's creator, and can be replaced while the gateway runs.
//
// Drivers and package app import this package. It imports sandbox, and gVisor's
// network stack.
package network
