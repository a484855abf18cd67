//go:build !embedguest

package guestbin

// program is empty: this program is its own guest.
var program []byte
