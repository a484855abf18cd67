// Package builds keeps the executables with which saved boxes can be restored. A saved
// state fits only the build that wrote it, and an update replaces that build's file.
//
// The driver and its supervisor import it. A [Set] is a directory, which several
// processes may share; it holds no resource. A build is a directory in it that is
// written whole or not at all.
package builds
