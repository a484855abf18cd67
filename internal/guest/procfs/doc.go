// Package procfs reads the files in which the OS kernel shows the processes, the
// memory, the mounts and the control group of a sandbox. Programs choose some of
// the text in these files, such as the names of processes. So every read is
// bounded, and a broken entry is skipped.
//
// Only the packages of the guest import it. It has no state.
package procfs
