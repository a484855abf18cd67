// Package cgroup makes the control groups of boxes, version 1 and version 2, and
// reads them back. It works for root, and for a user whose group was delegated.
//
// The lifecycle of a [Group] is [Hierarchies.Make], [Group.Add] for each process,
// and [Group.Remove] when the processes have ended. A group is plain data: another
// process can load it and remove it. [Empty] finds groups that a killed process
// left behind.
//
// The gVisor driver and its supervisor import this package. docs/RATIONALE.md says
// why it uses no library.
package cgroup
