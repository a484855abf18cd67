//go:build !linux

package network

import "net/netip"

// onLink returns nothing: a gateway runs on Linux only.
func onLink() ([]netip.Prefix, error) { return nil, nil }
