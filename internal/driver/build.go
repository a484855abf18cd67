package driver

// A BuildKeeper is a driver that keeps the executables with which saved boxes can be
// resumed after an update.
type BuildKeeper interface {
	// Builds returns the kept executables.
	Builds() ([]Build, error)
	// Bases returns the length, in bytes, of the snapshots that saved boxes share:
	// see [Spec].SharesSnapshot.
	Bases() (int64, error)
}

// A Build is a kept executable.
type Build struct {
	Hash  string // as in [Saved.Build]
	Bytes int64  // on the disk, with what belongs to it
}
