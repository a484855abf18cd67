// The functions that are linked by name have no bodies, which takes a file of
// assembly, if an empty one.
