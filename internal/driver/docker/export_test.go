package docker

import "context"

// AllowedFrom says why images may not be fetched from the registry of a name.
func AllowedFrom(ctx context.Context, d *Driver, name string, anywhere bool) error {
	registry, err := registryOf(name)
	if err != nil {
		return err
	}
	return d.pulls.registries.Check(ctx, name, registry, anywhere)
}

// Pulling returns how many callers wait for the pull of an image.
func Pulling(d *Driver, name string) int {
	d.pulls.mu.Lock()
	defer d.pulls.mu.Unlock()
	p := d.pulls.running[name]
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waiting
}
