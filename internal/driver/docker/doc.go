// Package docker makes boxes that are containers of a Docker Engine, or of Podman
// through the same API. The engine may be on this machine or another one, on any
// operating system. In this package, engine means this container engine.
//
// Only package app imports it. [New] makes a Driver, which connects to its engine
// at the first use and holds only connections to it. ([Probe] and [Doctor] report
// the engine that they find.) The engine stores all state of a box: one container
// with the name of the sandbox, whose labels identify its state directory. Another
// process therefore finds the box by asking the engine.
//
// # The guest
//
// The guest's program is in a volume that boxes mount read-only. The driver fills
// the volume through the API, once for each version of the program, because a
// remote engine cannot use paths of this machine. The guest is the container's
// first process. The engine passes the guest's standard input and output to the
// process that created the box. They are the guest's first connection and carry all
// others, so that no stream costs an exec. For any other process, the engine
// executes a relay in the container. The guest of an attached box ends when its
// standard input ends: the process that created the box has then ended, for
// whatever reason.
//
// # Confinement
//
// See box configuration in spec.go. If the engine cannot bound the size of a
// container's own layer, the root is read-only. The writable directories are then
// in memory, in file systems of bounded size.
//
// # Network
//
// A box with a network has a second container. It carries the packets of the box's
// only interface to a process of package network on this machine; see network.go.
package docker
