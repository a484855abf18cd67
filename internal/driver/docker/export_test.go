package docker

import "context"

// AllowedFrom says why images may not be fetched from the registry of a name.
func AllowedFrom(ctx context.Context, d *Driver, name string, anywhere bool) error {
	return d.allowedFrom(ctx, name, anywhere)
}

// Pulling returns how many callers wait for the pull of an image.
func Pulling(d *Driver, name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pulls[name]
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}
