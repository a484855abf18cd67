// Package operator lets the command line see and stop the objects of all
// principals.
//
// The command line belongs to the operator: a user who can open the state
// directory may see and stop everything in it. The requests of an [Operator] to
// the engine are in the name of the object's principal. If another process holds
// a sandbox, the Operator asks that process through package control. Package app
// makes one Operator for each System.
package operator
