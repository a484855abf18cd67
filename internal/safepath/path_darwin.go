package safepath

// pathOnly is nothing here: what may not be read cannot be opened.
const pathOnly = 0
