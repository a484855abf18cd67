// Package briefmap has a map that takes no memory while it is empty.
//
// A large server has thousands of idle sandboxes, each with maps of its runs, connections
// and streams. A Go map that had an entry once keeps some 250 bytes. The engine, the
// guest's client and the driver gvisor use this package; it needs no other one.
package briefmap

// A Map is a map that is nil while it is empty. Reading it is reading a map: only entries
// are added and removed by its methods. It is not safe for concurrent use.
type Map[K comparable, V any] map[K]V

// Set sets the value of a key.
func (m *Map[K, V]) Set(key K, value V) {
	if *m == nil {
		*m = Map[K, V]{}
	}
	(*m)[key] = value
}

// Delete removes a key, if it is there.
func (m *Map[K, V]) Delete(key K) {
	delete(*m, key)
	if len(*m) == 0 {
		*m = nil
	}
}
