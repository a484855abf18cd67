// Package excerpt shortens texts: the output of a run to its head and its tail,
// a text of the guest to a length, and a caller's text for use in a message.
//
// All of it is pure. Only package engine and the packages below it import it.
package excerpt
