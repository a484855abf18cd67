// Package image keeps OCI images for drivers without a container engine. It
// resolves references, fetches images from registries, reads them from archives,
// and checks every digest. It unpacks the layers of an image into one file, an
// EROFS image. Any number of sandboxes share it as their read-only root file
// system.
//
// A [Store] is a directory that several processes and servers of several users
// share. File locks coordinate them, so an image that several want at the same
// time is fetched and unpacked once. A later call continues or removes the files
// that a killed process left. All data from a registry or an archive are
// untrusted. They are bounded and verified, and never become a path, a link or a
// device on this machine.
//
// Packages app and driver/gvisor import it. The methods of a Store are safe for
// concurrent use.
package image
