package safepath

import "io/fs"

// AttributesOf returns the attributes in a description of a file. Windows has no
// numbers of users, and no time of the last change of attributes.
func AttributesOf(fi fs.FileInfo) Attributes {
	return Attributes{Accessed: fi.ModTime(), Changed: fi.ModTime()}
}
