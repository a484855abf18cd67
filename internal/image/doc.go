// Package image keeps OCI images for drivers that have no engine of their own
// to do it: it finds out what a reference stands for, fetches images from
// registries and reads them from archives, checks every digest, and makes of
// each image's layers one file, an EROFS image, that any number of sandboxes
// share as their read-only root file system.
//
// A [Store] is a directory, which several processes and several users' servers
// share: locks on files say who is at work, so what several want at once is
// fetched and made once, and whatever a killed process leaves is either
// continued or cleared away. Everything that comes from a registry or an archive
// is untrusted: bounded, verified, and never a path, a link or a device on this
// machine.
//
// Packages app and driver/gvisor import it. The methods of a Store are safe for
// concurrent use.
package image
