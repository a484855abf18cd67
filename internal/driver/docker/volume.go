package docker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	api "github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/docker/dockerapi"
)

// A filling is a volume that is written once and then only read.
type filling struct {
	name string
	// files returns the files for the volume. name is a container of the image; it
	// never runs.
	files func(ctx context.Context, name string) ([]container.File, error)
}

// volumes are the volumes that boxes share. Their methods are safe for concurrent
// use.
type volumes struct {
	guest string // path of the guest's program

	mu      sync.Mutex
	full    map[string]bool     // names of the volumes that are known to be filled; guarded by mu
	lacking map[string][]string // directories that images do not have; see missing; guarded by mu
}

func newVolumes(guest string) *volumes {
	return &volumes{guest: guest, full: make(map[string]bool), lacking: make(map[string][]string)}
}

// forget has the volume of a name filled again at its next use.
func (v *volumes) forget(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.full, name)
}

// program opens the guest's program. The caller closes it.
func (v *volumes) program(e *dockerapi.Engine) (*os.File, error) {
	return container.OpenGuest(v.guest, e.Name, e.Facts.Architecture)
}

// filled returns the name of the volume. It fills a missing volume with the help of
// a container of the image. If again is set, it fills the volume in any case,
// because its content was damaged.
func (v *volumes) filled(ctx context.Context, e *dockerapi.Engine, f filling, image string, again bool) (string, error) {
	v.mu.Lock()
	known := v.full[f.name]
	v.mu.Unlock()
	if known && !again {
		return f.name, nil
	}
	if err := fillOnce(ctx, e, f, image, again); err != nil {
		return "", fmt.Errorf("fill volume %s: %w", f.name, err)
	}
	v.mu.Lock()
	v.full[f.name] = true
	v.mu.Unlock()
	return f.name, nil
}

// guestVolume returns the name of the volume with the guest's program.
func (v *volumes) guestVolume(ctx context.Context, e *dockerapi.Engine, image string, again bool) (string, error) {
	program, err := v.program(e)
	if err != nil {
		return "", err
	}
	defer program.Close()
	name, size, err := container.GuestVolume(program)
	if err != nil {
		return "", err
	}
	return v.filled(ctx, e, filling{name: name, files: func(context.Context, string) ([]container.File, error) {
		_, err := program.Seek(0, io.SeekStart)
		return []container.File{{Name: container.GuestName, Size: size, Content: program}}, err
	}}, image, again)
}

// settingsDir returns the container engine's path of the settings for boxes of an
// image.
func (v *volumes) settingsDir(ctx context.Context, e *dockerapi.Engine, image string, again bool) (string, error) {
	name, err := v.filled(ctx, e, filling{
		name: container.SettingsVolume(image),
		files: func(ctx context.Context, name string) ([]container.File, error) {
			return container.SettingsFiles(func(file string) ([]byte, error) { return e.ReadFile(ctx, name, file, container.MaxSetting) })
		},
	}, image, again)
	if err != nil {
		return "", err
	}
	found, err := e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) && !again {
		return v.settingsDir(ctx, e, image, true)
	}
	if err != nil {
		return "", e.Explain(err)
	}
	return found.Volume.Mountpoint, nil
}

// staleFill is the age from which a filling counts as abandoned.
const staleFill = time.Minute

// fillOnce fills a volume unless it is filled already. The container for the
// filling has the volume's name, and exists until the filling ends. Its name is a
// lock: a volume without such a container is complete, and only one process fills
// it.
func fillOnce(ctx context.Context, e *dockerapi.Engine, f filling, image string, again bool) error {
	for {
		c, err := e.ContainerInspect(ctx, f.name, client.ContainerInspectOptions{})
		if err == nil {
			if made, err := time.Parse(time.RFC3339Nano, c.Container.Created); err != nil || time.Since(made) > staleFill {
				if err := e.Remove(ctx, f.name); err != nil {
					return err
				}
				again = true
			} else if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if !errdefs.IsNotFound(err) {
			return e.Explain(err)
		}
		if !again {
			_, err := e.VolumeInspect(ctx, f.name, client.VolumeInspectOptions{})
			if err == nil {
				return nil
			}
			if !errdefs.IsNotFound(err) {
				return e.Explain(err)
			}
		}
		err = fill(ctx, e, f, image)
		if errdefs.IsConflict(err) || err != nil && strings.Contains(err.Error(), "is already in use") {
			again = false // another process fills it
			continue
		}
		return err
	}
}

func fill(ctx context.Context, e *dockerapi.Engine, f filling, image string) (err error) {
	ctx, cancel := dockerapi.Steady(ctx)
	defer cancel()
	_, err = e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: f.name,
		Config: &api.Config{
			Image:      image,
			Entrypoint: []string{container.GuestPath},
			Labels:     map[string]string{container.LabelRole: container.RoleFiller},
		},
		HostConfig: &api.HostConfig{
			NetworkMode: "none",
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: f.name, Target: container.GuestDir,
				VolumeOptions: &mount.VolumeOptions{NoCopy: true},
			}},
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		filled := err == nil
		if err = errors.Join(err, e.Remove(ctx, f.name)); !filled {
			// Remove the partial volume, or the next caller would take it for
			// complete. A volume that boxes use stays, and is filled again when one
			// of them does not start.
			_, _ = e.VolumeRemove(ctx, f.name, client.VolumeRemoveOptions{})
		}
	}()
	files, err := f.files(ctx, f.name)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(container.WriteArchive(pw, files)) }()
	defer pr.Close()
	if _, err := e.CopyToContainer(ctx, f.name, client.CopyToContainerOptions{DestinationPath: container.GuestDir, Content: pr}); err != nil {
		return e.Explain(err)
	}
	return nil
}

// missing returns the directories in dirs that an image does not have. It looks in
// a container that never runs, once for each image.
func (v *volumes) missing(ctx context.Context, e *dockerapi.Engine, image string, dirs []string) (missing []string, err error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	key := image + " " + strings.Join(dirs, " ")
	v.mu.Lock()
	known, ok := v.lacking[key]
	v.mu.Unlock()
	if ok {
		return known, nil
	}
	ctx, cancel := dockerapi.Steady(ctx)
	defer cancel()
	name := container.VolumePrefix + "look-" + strings.ToLower(rand.Text())
	_, err = e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:       name,
		Config:     &api.Config{Image: image, Entrypoint: []string{container.GuestPath}, Labels: map[string]string{container.LabelRole: container.RoleFiller}},
		HostConfig: &api.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return nil, e.Explain(err)
	}
	defer func() { err = errors.Join(err, e.Remove(ctx, name)) }()
	for _, dir := range dirs {
		_, err := e.ContainerStatPath(ctx, name, client.ContainerStatPathOptions{Path: dir})
		if errdefs.IsNotFound(err) {
			missing = append(missing, dir)
		} else if err != nil {
			return nil, e.Explain(err)
		}
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lacking[key] = missing
	return missing, nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
