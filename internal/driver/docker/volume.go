package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/api/types/mount"
	"github.com/moby/moby/client"

	"github.com/glovebox-dev/glovebox/internal/network"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// The mount point of the volume with the guest's program, and the program in it.
const (
	guestDir  = "/.glovebox"
	guestName = "glovebox-guest"
	guestPath = guestDir + "/" + guestName
)

// Prefixes of the names of the volumes that boxes share, and of the volumes with
// settings.
const (
	volumePrefix   = "glovebox-"
	settingsPrefix = volumePrefix + "settings-"
)

// A filling is a volume that is written once and then only read.
type filling struct {
	name string
	// files returns the files for the volume, and their sizes. container is a
	// container of the image; it never runs.
	files func(ctx context.Context, container string) (map[string]io.Reader, map[string]int64, error)
}

// filled returns the name of the volume. It fills a missing volume with the help of
// a container of the image. If again is set, it fills the volume in any case,
// because its content was damaged.
func (d *Driver) filled(ctx context.Context, e *engine, f filling, image string, again bool) (string, error) {
	d.mu.Lock()
	known := d.volumes[f.name]
	d.mu.Unlock()
	if known && !again {
		return f.name, nil
	}
	if err := e.fillOnce(ctx, f, image, again); err != nil {
		return "", fmt.Errorf("fill volume %s: %w", f.name, err)
	}
	d.mu.Lock()
	d.volumes[f.name] = true
	d.mu.Unlock()
	return f.name, nil
}

// guestVolume returns the name of the volume with the guest's program. Each content
// has its own volume, so that several versions can run at once.
func (d *Driver) guestVolume(ctx context.Context, e *engine, image string, again bool) (string, error) {
	program, err := e.guestProgram(d.opts.Guest)
	if err != nil {
		return "", err
	}
	defer program.Close()
	h := sha256.New()
	size, err := io.Copy(h, program)
	if err != nil {
		return "", fmt.Errorf("read the guest's program: %w", err)
	}
	return d.filled(ctx, e, filling{
		name: volumePrefix + "guest-" + hex.EncodeToString(h.Sum(nil)[:8]),
		files: func(context.Context, string) (map[string]io.Reader, map[string]int64, error) {
			_, err := program.Seek(0, io.SeekStart)
			return map[string]io.Reader{guestName: program}, map[string]int64{guestName: size}, err
		},
	}, image, again)
}

// settings are files that replace those of the box's image. The files of users have
// the image's content after an entry for the sandbox's user. The file of name
// servers replaces the host's file, which engines would mount there.
var settings = map[string]string{
	"/etc/passwd": fmt.Sprintf("%s:x:%d:%[2]d::%s:/bin/sh\n", sandbox.User, sandbox.UserUID, homeDir),
	"/etc/group":  fmt.Sprintf("%s:x:%d:\n", sandbox.User, sandbox.UserUID),
	resolvConf:    "# This sandbox has no network.\n",
	// This file replaces resolvConf in boxes with a network. A query is lost only
	// if the network refused it, so few attempts are enough.
	linkedResolvers: fmt.Sprintf("nameserver %s\nnameserver %s\noptions timeout:5 attempts:2\n", network.Gateway4.Addr(), network.Gateway6.Addr()),
}

const (
	resolvConf      = "/etc/resolv.conf"
	linkedResolvers = "/etc/resolv.linked.conf"
)

// maxSetting bounds the size of a file that is read from an image.
const maxSetting = 1 << 20

// settingsVolume returns the name of the settings volume of an image ID.
func settingsVolume(image string) string {
	id := strings.TrimPrefix(image, "sha256:")
	return settingsPrefix + id[:min(16, len(id))]
}

// settingsDir returns the engine's path of the settings for boxes of an image.
func (d *Driver) settingsDir(ctx context.Context, e *engine, image string, again bool) (string, error) {
	name, err := d.filled(ctx, e, filling{
		name: settingsVolume(image),
		files: func(ctx context.Context, container string) (map[string]io.Reader, map[string]int64, error) {
			files, sizes := map[string]io.Reader{}, map[string]int64{}
			for file, first := range settings {
				var text []byte
				if file != resolvConf && file != linkedResolvers {
					var err error
					if text, err = e.readFile(ctx, container, file); err != nil {
						return nil, nil, err
					}
				}
				if len(text) == 0 && file == "/etc/passwd" {
					first += "root:x:0:0::/root:/bin/sh\n"
				}
				text = append([]byte(first), text...)
				files[path.Base(file)], sizes[path.Base(file)] = bytes.NewReader(text), int64(len(text))
			}
			return files, sizes, nil
		},
	}, image, again)
	if err != nil {
		return "", err
	}
	v, err := e.VolumeInspect(ctx, name, client.VolumeInspectOptions{})
	if errdefs.IsNotFound(err) && !again {
		return d.settingsDir(ctx, e, image, true)
	}
	if err != nil {
		return "", e.explain(err)
	}
	return v.Volume.Mountpoint, nil
}

// readFile returns the content of a file in a container. It returns nothing if the
// file is missing, not regular or larger than maxSetting.
func (e *engine) readFile(ctx context.Context, name, file string) ([]byte, error) {
	got, err := e.CopyFromContainer(ctx, name, client.CopyFromContainerOptions{SourcePath: file})
	if errdefs.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, e.explain(err)
	}
	defer got.Content.Close()
	r := tar.NewReader(got.Content)
	h, err := r.Next()
	if err != nil || h.Typeflag != tar.TypeReg || h.Size > maxSetting {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxSetting))
}

// staleFill is the age from which a filling counts as abandoned.
const staleFill = time.Minute

// fillOnce fills a volume unless it is filled already. The container for the
// filling has the volume's name, and exists until the filling ends. Its name is a
// lock: a volume without such a container is complete, and only one process fills
// it.
func (e *engine) fillOnce(ctx context.Context, f filling, image string, again bool) error {
	for {
		c, err := e.ContainerInspect(ctx, f.name, client.ContainerInspectOptions{})
		if err == nil {
			if made, err := time.Parse(time.RFC3339Nano, c.Container.Created); err != nil || time.Since(made) > staleFill {
				if err := e.remove(ctx, f.name); err != nil {
					return err
				}
				again = true
			} else if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return err
			}
			continue
		}
		if !errdefs.IsNotFound(err) {
			return e.explain(err)
		}
		if !again {
			_, err := e.VolumeInspect(ctx, f.name, client.VolumeInspectOptions{})
			if err == nil {
				return nil
			}
			if !errdefs.IsNotFound(err) {
				return e.explain(err)
			}
		}
		err = e.fill(ctx, f, image)
		if errdefs.IsConflict(err) || err != nil && strings.Contains(err.Error(), "is already in use") {
			again = false // another process fills it
			continue
		}
		return err
	}
}

func (e *engine) fill(ctx context.Context, f filling, image string) (err error) {
	ctx, cancel := steady(ctx)
	defer cancel()
	_, err = e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name: f.name,
		Config: &container.Config{
			Image:      image,
			Entrypoint: []string{guestPath},
			Labels:     map[string]string{labelRole: roleFiller},
		},
		HostConfig: &container.HostConfig{
			NetworkMode: "none",
			Mounts: []mount.Mount{{
				Type: mount.TypeVolume, Source: f.name, Target: guestDir,
				VolumeOptions: &mount.VolumeOptions{NoCopy: true},
			}},
		},
	})
	if err != nil {
		return err
	}
	defer func() {
		filled := err == nil
		if err = errors.Join(err, e.remove(ctx, f.name)); !filled {
			// Remove the partial volume, or the next caller would take it for
			// complete. A volume that boxes use stays, and is filled again when one
			// of them does not start.
			_, _ = e.VolumeRemove(ctx, f.name, client.VolumeRemoveOptions{})
		}
	}()
	files, sizes, err := f.files(ctx, f.name)
	if err != nil {
		return err
	}
	pr, pw := io.Pipe()
	go func() { pw.CloseWithError(writeTar(pw, files, sizes)) }()
	defer pr.Close()
	if _, err := e.CopyToContainer(ctx, f.name, client.CopyToContainerOptions{DestinationPath: guestDir, Content: pr}); err != nil {
		return e.explain(err)
	}
	return nil
}

// missing returns the directories in dirs that an image does not have. It looks in
// a container that never runs, once for each image.
func (d *Driver) missing(ctx context.Context, e *engine, image string, dirs []string) (missing []string, err error) {
	if len(dirs) == 0 {
		return nil, nil
	}
	key := image + " " + strings.Join(dirs, " ")
	d.mu.Lock()
	known, ok := d.lacking[key]
	d.mu.Unlock()
	if ok {
		return known, nil
	}
	ctx, cancel := steady(ctx)
	defer cancel()
	name := volumePrefix + "look-" + strings.ToLower(rand.Text())
	_, err = e.ContainerCreate(ctx, client.ContainerCreateOptions{
		Name:       name,
		Config:     &container.Config{Image: image, Entrypoint: []string{guestPath}, Labels: map[string]string{labelRole: roleFiller}},
		HostConfig: &container.HostConfig{NetworkMode: "none"},
	})
	if err != nil {
		return nil, e.explain(err)
	}
	defer func() { err = errors.Join(err, e.remove(ctx, name)) }()
	for _, dir := range dirs {
		_, err := e.ContainerStatPath(ctx, name, client.ContainerStatPathOptions{Path: dir})
		if errdefs.IsNotFound(err) {
			missing = append(missing, dir)
		} else if err != nil {
			return nil, e.explain(err)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lacking[key] = missing
	return missing, nil
}

// writeTar writes an archive of programs or texts that every user may read.
func writeTar(to io.Writer, files map[string]io.Reader, sizes map[string]int64) error {
	w := tar.NewWriter(to)
	for name, content := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: sizes[name], Format: tar.FormatPAX}); err != nil {
			return err
		}
		if _, err := io.Copy(w, content); err != nil {
			return err
		}
	}
	return w.Close()
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
