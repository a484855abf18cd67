//go:build !embedguest

package guestbin

// program is empty: this program acts as the guest.
var program []byte
