// Package edit replaces texts in the contents of a file, and says what is near if a
// text is not there. It keeps the encoding and the line endings of the contents.
//
// Only package guest/files imports it. It is pure: it neither reads nor writes
// files, and keeps nothing. Its memory and time are bounded by its input, which the
// caller bounds.
package edit
