package safepath

// CheckLinks returns nil: on Windows, only [os.Root] opens directories.
func (d *Dir) CheckLinks() error { return nil }
