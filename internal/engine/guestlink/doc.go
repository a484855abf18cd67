// Package guestlink is the engine's link to the guest of a box: the interface that
// the engine needs of a guest, so that tests can replace the guest, and the
// engine's own programs in the box.
//
// [Dial] makes the link, and its Close ends all streams. Only package engine and
// the packages below it import this package.
package guestlink
