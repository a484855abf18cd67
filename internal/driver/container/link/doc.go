// Package link carries packets between the tunnel of a box and the box's process of
// package network.
//
// Only package container imports it. The box's network has the one [Link] of a
// process, and closes it. Of several processes, the one with the [Lock] carries the
// network. Links exist on Linux only.
package link
