// Package docker makes boxes that are containers of a Docker Engine, or of Podman
// through the same API. The container engine may be on this machine or another one,
// on any operating system. Messages call it the engine.
//
// Only package app imports it. [New] makes a Driver, which connects to its container
// engine at the first use and holds only connections to it. ([Driver.Probe] and [Doctor]
// report the container engine that they find.) Package container describes the
// boxes. This package makes the container engine's containers, volumes and images
// for them. Package dockerapi finds the container engine and speaks to it.
//
// # Volumes
//
// The driver fills volumes through the API, once for each content, because a remote
// container engine cannot use paths of this machine: with the guest's program, and
// with the settings for boxes of one image.
//
// # Confinement
//
// If the container engine cannot bound the size of a container's own layer, the root
// is read-only. The writable directories are then in memory, in file systems of
// bounded size.
//
// # Locks
//
// The lock of the server of workspaces is held while its container is made, so it is
// taken before any other. The locks of the connection, the volumes, the launcher and
// the pulls guard fields; of these, the connection's is held while it connects. The
// lock of all pulls is taken before that of one pull.
package docker
