// Package glob matches paths with patterns: the globs of callers, and the rules
// of .gitignore files. Both have git's wildcards, in which ** matches any number
// of directories.
//
// Packages that walk trees of files import it, on the host and in the guest. Its
// values do not change, so they are safe for concurrent use. Matching takes a time
// that is bounded by the product of the lengths of pattern and path.
package glob
