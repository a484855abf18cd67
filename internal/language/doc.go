// Package language is the table of languages: one row for each, with all its
// names, the ways to run its programs, and whether it has contexts.
//
// Packages kernels and interpreter make their own values of the rows. Others use
// the constants, such as [Default]. The table is data, and does not change.
package language
