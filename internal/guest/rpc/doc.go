// Package rpc is the server side of the guest's protocol, without its
// procedures. It decodes requests, encodes replies and streams, and gives errors
// the form in which they are answered. Package guestapi has the messages.
//
// Only the packages of the guest import it. It has no state: the functions that
// serve a procedure are made once, and each request has its own [Stream].
package rpc
