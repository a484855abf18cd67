//go:build !linux

package kubernetes_test

// actAsOther does nothing: the guest is for Linux.
func actAsOther() {}
