// Package screen shows data of untrusted programs on a terminal: pictures, and
// recorded text. Only package cli imports it.
//
// The process decodes no picture: the terminal does. A [Show] therefore bounds what
// the terminal gets, by the size of the data and by the size in the header.
package screen
