// Package app connects all parts of Glovebox. From a configuration it makes a
// [System] with an engine, a driver, a store and servers. These know each other
// only by the interfaces that they declare.
//
// Only package cli imports it, and no other package knows all parts. [Open]
// makes a System. The caller uses its Engine, or one of its Serve methods. Close
// ends it and every sandbox that is not detached.
package app
