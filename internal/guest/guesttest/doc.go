// Package guesttest starts whole guests for tests, with a client of each. The
// test's own program becomes the guest, so a package whose tests use it calls
// [Main] in its TestMain. At the end of a test, a guest must have left nothing.
//
// Only tests import it.
package guesttest
