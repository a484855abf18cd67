// Package search walks trees of files for the guest: it finds lines that match a
// regular expression, and files that match a glob. The thread's user needs the right
// to read what is walked.
//
// Only package guest/files imports it. A [Walk] serves one call. Its memory is
// bounded for any tree, and it ends soon after its context. It follows no link below
// its root, opens no file but regular ones, and leaves out the file systems of the
// kernel, such as /proc.
package search
