// Package dockerapi is the client of a container engine: of a Docker Engine, or of
// Podman through the same API. It finds the container engine on this machine or
// another one, gives its errors kinds and hints, and starts containers with their
// standard streams.
//
// Only package docker imports it. [Find] makes an [Engine], which the caller closes.
// An Engine holds only connections, and its methods are safe for concurrent use.
package dockerapi
