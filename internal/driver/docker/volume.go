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

// Where the volume with the guest's program is mounted, and the program in it.
const (
	guestDir  = "/.glovebox"
	guestName = "glovebox-guest"
	guestPath = guestDir + "/" + guestName
)

// How the names of the volumes that boxes share begin, and of those with
// settings.
const (
	volumePrefix   = "glovebox-"
	settingsPrefix = volumePrefix + "settings-"
)

// A filling is a volume that is filled once and then only read.
type filling struct {
	name string
	// files returns what is put into it. The container, which never runs, is
	// one of the image that is asked for.
	files func(ctx context.Context, container string) (map[string]io.Reader, map[string]int64, error)
}

// filled returns the name of the volume, which is filled if it is not there, by
// means of a container of the image. With again, it is filled in any case:
// something was wrong with it.
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

// guestVolume returns the name of the volume with the guest's program: there is
// one for each content, so that several versions get on.
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

// settings are files that a box has in place of its image's: those that name
// users are the image's own, with the sandbox's user before all others; the one
// that names name servers is not the host's, which engines would put there.
var settings = map[string]string{
	"/etc/passwd": fmt.Sprintf("%s:x:%d:%[2]d::%s:/bin/sh\n", sandbox.User, sandbox.UserUID, homeDir),
	"/etc/group":  fmt.Sprintf("%s:x:%d:\n", sandbox.User, sandbox.UserUID),
	resolvConf:    "# This sandbox has no network.\n",
	// In place of the other in boxes that have one. What is lost on the way was
	// refused.
	linkedResolvers: fmt.Sprintf("nameserver %s\nnameserver %s\noptions timeout:5 attempts:2\n", network.Gateway4.Addr(), network.Gateway6.Addr()),
}

const (
	resolvConf      = "/etc/resolv.conf"
	linkedResolvers = "/etc/resolv.linked.conf"
)

// maxSetting bounds what is taken of an image.
const maxSetting = 1 << 20

// settingsVolume names the volume that has them, of an image's ID.
func settingsVolume(image string) string {
	id := strings.TrimPrefix(image, "sha256:")
	return settingsPrefix + id[:min(16, len(id))]
}

// settingsDir returns where the engine has the settings of boxes of an image.
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

// readFile reads a file of a container; one that is not there, or is no file,
// is empty.
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

// staleFill is how old a filling is that somebody gave up.
const staleFill = time.Minute

// fillOnce fills a volume unless it is. The container through which that is
// done bears its name and is there as long as it takes: so a volume without one
// is whole, and nobody else fills it meanwhile.
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
			again = false // another does it
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
			// Or the next would take it for whole. One that boxes have stays, and is
			// filled again when one of them does not start.
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

// missing returns those of the directories that an image does not have. They
// are looked for by means of a container that never runs, once for each image.
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

// writeTar writes an archive of programs, or of texts, which anybody may read.
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
