// Package users has the numbers of users that root's boxes have on the host, and the
// ID-mapped mounts that translate them.
//
// The server makes a [Range] for its state directory, opens trees with it, and
// closes it. The supervisor only asks which numbers are a box's. Both import this
// package.
package users
