// Package request checks requests before the engine acts on them: their bounds,
// the names in them, and the rules of the server. It also has the errors with
// which the engine refuses a request.
//
// All of it is pure: no function reads or changes the state of a sandbox. Only
// package engine and the packages below it import it.
package request
