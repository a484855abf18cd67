// Package prepare makes the boxes of a pool warm: it starts interpreters in them
// and imports modules, so that the first caller of a box need not wait.
//
// Package app gives the methods of [Interpreters] to the pool, which calls them
// for each new box. They hold no resources.
package prepare
