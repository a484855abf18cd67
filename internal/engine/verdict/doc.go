// Package verdict judges how a run ended: from the guest's end event, the
// driver's counts, the engine's own fate for the run, and the reason for which
// its sandbox stops.
//
// All of it is pure. Only package engine and the packages below it import it.
package verdict
