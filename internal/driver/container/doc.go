// Package container is the layer that drivers of containers share: all of a box
// that is not a call to a container engine or to a cluster. A driver adds such
// calls, as a [Platform] and a [Tunnel].
//
// Only the drivers of containers and their packages import it. A driver makes one
// [StateDir] and one [Boxes], and releases the Boxes when it closes. The state of a
// box is in its container, whose labels hold a [Record], and in the directory of
// its network. Another process therefore finds the box by asking the platform.
//
// # The guest
//
// The guest's program is in a volume that boxes mount read-only at [GuestDir]. The
// guest is the container's first process. The platform passes the guest's standard
// input and output to the process that created the box. They are the guest's first
// connection and carry all others. For any other process, the platform executes a
// relay in the container. The guest of an attached box ends when its standard input
// ends: the process that created the box has then ended, for whatever reason.
//
// # Confinement
//
// A [Plan] holds the rules for one container as data, and a driver translates it.
// The receipt does not depend on that translation: the guest reads every limit back
// from the host kernel.
//
// # Network
//
// A box with a network has a second container, the tunnel, in the network namespace
// of its own container, which has only a loopback interface. The tunnel makes an
// interface there. It carries packets between this interface and its standard input
// and output. The other end, on this machine, is the process of package network
// that enforces the policy.
//
// A guest with one user, in a Pod, leaves the platform's network by itself. It makes
// the interface in a namespace of its own, and its parent process is the tunnel.
//
// The link therefore needs none of the platform's networks, wherever the platform
// is. The box's programs have no more control over it than over any interface. If
// any part ends, the box reaches nothing.
//
// # Locks
//
// [StateDir], [Boxes], [Box] and boxNetwork have one lock each for their fields. A
// Box holds its lock during calls of its Platform, which may take the lock of the
// StateDir. No other two are held at the same time. The lock that orders changes of
// a box's policy is taken before any other.
package container
