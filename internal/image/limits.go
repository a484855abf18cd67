package image

// Limits bound an image. An image that exceeds them is refused, and none of it is
// kept.
type Limits struct {
	// Files bounds the files of an image, including directories and links.
	Files int
	// Bytes bounds the total size of its files, in bytes. Files that a higher
	// layer replaces are included.
	Bytes int64
	// Ratio bounds the decompressed size of a layer divided by its compressed
	// size. It applies to layers above 256 MiB.
	Ratio int64
}

// DefaultLimits returns limits far above the images in common use.
func DefaultLimits() Limits {
	return Limits{Files: 500_000, Bytes: 32 << 30, Ratio: 200}
}
