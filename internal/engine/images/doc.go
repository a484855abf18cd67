// Package images knows whose the images of a driver are, pulls them for
// principals, and chooses the image for a language.
//
// [Images] has no lock of its own. A pull waits for a place in a pool that
// principals share. Only package engine imports this package.
package images
