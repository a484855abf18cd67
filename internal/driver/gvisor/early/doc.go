// Package early does what a helper process of gVisor's must do before the
// packages of gVisor are initialised, which takes longer than all that some of
// these processes are for. Two processes start for each box.
//
// It works by being initialised first: Go initialises the packages of a program
// in the order of their paths, as far as their imports allow, and this one
// imports next to nothing and comes before gvisor.dev. It is the one package
// here whose initialisation has effects; in a process that is no helper it has
// none.
//
// Only driver/gvisor imports it.
package early
