// Package callfilter starts a process with a filter of system calls, which all
// processes of boxes inherit. The sentries' own filters come on top of it.
//
// The driver imports this package. It keeps no state.
package callfilter
