// Package docker makes boxes that are containers of a Docker Engine, or of Podman
// through the same API. The container engine may be on this machine or another one,
// on any operating system. In this package, engine means this container engine.
//
// Only package app imports it. [New] makes a Driver, which connects to its engine
// at the first use and holds only connections to it. ([Probe] and [Doctor] report
// the engine that they find.) Package container describes the boxes. This package
// makes the engine's containers, volumes and images for them. Package dockerapi
// finds the engine and speaks to it.
//
// # Volumes
//
// The driver fills volumes through the API, once for each content, because a remote
// engine cannot use paths of this machine: with the guest's program, and with the
// settings for boxes of one image.
//
// # Confinement
//
// If the engine cannot bound the size of a container's own layer, the root is
// read-only. The writable directories are then in memory, in file systems of
// bounded size.
//
// # Locks
//
// The lock of the server of workspaces is held while its container is made, so it is
// taken before any other. The locks of the connection, the volumes, the launcher and
// the pulls guard fields; of these, the connection's is held while it connects. The
// lock of all pulls is taken before that of one pull.
package docker
