// Package languages finds the languages and packages that a sandbox has, and the
// installer for the packages of a language.
//
// It has no state, and no lock. Only package engine imports this package.
package languages
