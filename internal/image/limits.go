package image

// Limits bound what an image may be. What is above is refused, and nothing of
// it is kept.
type Limits struct {
	// Files is how many files an image may have, directories and links
	// included.
	Files int
	// Bytes is how large its files may be in all, in bytes, those included
	// that a higher layer replaces.
	Bytes int64
	// Ratio is how many times as large as its compressed form a layer may be,
	// once it is above 256 MiB.
	Ratio int64
}

// DefaultLimits are far above the images that people use.
func DefaultLimits() Limits {
	return Limits{Files: 500_000, Bytes: 32 << 30, Ratio: 200}
}
