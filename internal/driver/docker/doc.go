// Package docker makes boxes that are containers of a Docker Engine, or of
// Podman through the same API, on this machine or another one, on any system.
//
// Only package app imports it. [New] makes a Driver, which looks for its engine
// when it is first needed ([Probe] and [Doctor] say what they find), and holds
// no more than connections to it. What there is of a box, the engine keeps: one
// container, named as the sandbox, whose labels say whose it is. So another
// process finds it by asking the engine.
//
// # The guest
//
// The guest's program comes from a volume, mounted read-only, that is filled
// once for each version of it, through the API: paths of this machine mean
// nothing to an engine that is elsewhere. The guest is the container's first
// process. Its standard input and output, which the engine hands to whoever
// created the box, are its first connection and carry all others, so that no
// stream costs an exec; another process has the engine execute a relay in the
// container for the same. An attached box's guest ends when its standard input
// does: that is its owner's end, whatever way it came.
//
// # Confinement
//
// See box configuration in spec.go. Where the engine cannot bound the size of
// a container's own layer, its root is read-only, and what may be written lies
// in memory, in file systems of bounded size.
//
// # Network
//
// A box with a network has a second container, which carries the packets of its
// only interface to a process of package network's on this machine; see
// network.go.
package docker
