package template

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// errNotOurs is returned in a change of a build that another process changed.
var errNotOurs = errors.New("another process has changed the build")

// filesAge is how long an uploaded archive is kept after its last use. A build that
// waits and then runs as long as it may still finds it.
func (s *Service) filesAge() time.Duration { return queueTime + s.opts.BuildTime + time.Hour }

// Sweep ends the builds of dead servers, and removes what is not needed: old
// builds, uploaded files, and files and images without a build.
func (s *Service) Sweep(ctx context.Context) error {
	builds, err := s.opts.Store.AllTemplateBuilds(ctx)
	if err != nil {
		return err
	}
	var errs []error
	known := map[string]Build{}
	kept := map[string]int{} // by template
	for _, b := range builds {
		if !b.Status.Over() {
			known[b.ID] = b
			errs = append(errs, s.endDead(ctx, b))
			continue
		}
		if b.Image == "" {
			kept[b.Template]++
			if kept[b.Template] > maxKept || s.opts.Now().Sub(b.Finished) > keptFor {
				errs = append(errs, s.opts.Store.RemoveBuild(ctx, b.ID))
				continue // its log has no build now
			}
		}
		known[b.ID] = b
	}
	errs = append(errs,
		s.sweepFiles(s.logsDir(), func(name string, age time.Duration) bool {
			return age > strayAge && !has(known, strings.TrimSuffix(name, ".jsonl"))
		}),
		s.sweepFiles(s.workDir(), func(name string, age time.Duration) bool { return age > strayAge && !has(known, name) }),
		s.sweepUploads(), s.sweepLogs(ctx, builds), s.dropOld(ctx, ""), s.sweepImages(ctx))
	return errors.Join(errs...)
}

// strayAge is the age from which on a file without a build is a stray. The list of
// builds may be older than a younger file.
const strayAge = 10 * time.Minute

func has(builds map[string]Build, id string) bool {
	_, ok := builds[id]
	return ok
}

// endDead ends a build whose server has died, or whose steps never came.
func (s *Service) endDead(ctx context.Context, b Build) error {
	why := "the server ended during the build; build it again"
	if b.Status == store.BuildRequested {
		if s.opts.Now().Sub(b.Created) < queueTime {
			return nil
		}
		why = "the build was requested, but its steps did not come"
	} else {
		if b.Owner == s.opts.Owner {
			return nil
		}
		if alive, err := s.opts.Store.OwnerAlive(b.Owner); alive || err != nil {
			return err
		}
	}
	p, err := s.opts.Store.TemplateOwner(ctx, b.Template)
	if err != nil {
		return err
	}
	// The remains go first: if this process dies now, another one finds the build
	// again.
	var errs []error
	if b.Sandbox != "" {
		if err := s.opts.Sandboxes.Stop(ctx, p, b.Sandbox); sandbox.KindOf(err) != sandbox.NotFound {
			errs = append(errs, err)
		}
	}
	errs = append(errs, s.removeImage(ctx, b.Image), os.RemoveAll(filepath.Join(s.workDir(), b.ID)))
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err = s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error {
		if now.Status != b.Status || now.Owner != b.Owner {
			return errNotOurs
		}
		now.Status, now.Reason, now.Sandbox, now.Image = store.BuildFailed, why, "", ""
		return nil
	})
	if errors.Is(err, errNotOurs) {
		return nil
	}
	return err
}

// forget removes the files and the image of a build.
func (s *Service) forget(ctx context.Context, b Build) error {
	return errors.Join(s.removeImage(ctx, b.Image), ignoreGone(os.Remove(s.logFile(b.ID))), os.RemoveAll(filepath.Join(s.workDir(), b.ID)))
}

// removeTime bounds the removal of images. They wait while another image is fetched,
// which can take long. The next sweep removes the rest.
const removeTime = 10 * time.Second

// removeImage removes an image, unless the name is "".
func (s *Service) removeImage(ctx context.Context, name string) error {
	if name == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	if _, err := s.opts.Images.RemoveImage(ctx, name); err != nil && sandbox.KindOf(err) != sandbox.NotFound {
		return err
	}
	return s.opts.Images.ForgetImages(ctx)
}

// dropOld removes the images of a template's builds that have no tag, or of all if
// template is "".
func (s *Service) dropOld(ctx context.Context, template string) error {
	old, err := s.opts.Store.UntaggedBuilds(ctx, template)
	if err != nil {
		return err
	}
	remove, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	var errs []error
	for _, b := range old {
		if err := s.removeImage(remove, b.Image); err != nil {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, s.opts.Store.ChangeBuild(ctx, b.ID, func(now *Build) error { now.Image = ""; return nil }))
	}
	return errors.Join(errs...)
}

// sweepImages removes images of builds that have no record any more.
func (s *Service) sweepImages(ctx context.Context) error {
	list, err := s.opts.Images.Images(ctx)
	if err != nil {
		return err
	}
	// The records are read after the list: each image has its record before it is
	// made.
	builds, err := s.opts.Store.AllTemplateBuilds(ctx)
	if err != nil {
		return err
	}
	used := map[string]bool{}
	for _, b := range builds {
		used[b.Image] = true
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	var errs []error
	for _, i := range list {
		_, tag, _ := strings.Cut(strings.TrimPrefix(i.Name, imagePrefix), ":")
		if strings.HasPrefix(i.Name, imagePrefix) && buildForm.MatchString(tag) && !used[i.Name] {
			errs = append(errs, s.removeImage(ctx, i.Name))
		}
	}
	return errors.Join(errs...)
}

// sweepLogs removes the oldest logs of principals whose logs are too long together.
// The builds are the newest first.
func (s *Service) sweepLogs(ctx context.Context, builds []Build) error {
	all, err := s.opts.Store.Templates(ctx, "")
	if err != nil {
		return err
	}
	owner := map[string]sandbox.Principal{}
	for _, t := range all {
		owner[t.ID] = t.Principal
	}
	var errs []error
	total := map[sandbox.Principal]int64{}
	for _, b := range builds {
		fi, err := os.Stat(s.logFile(b.ID))
		if err != nil {
			errs = append(errs, ignoreGone(err))
			continue
		}
		p := owner[b.Template]
		if total[p] += fi.Size(); total[p] > maxLogs && b.Status.Over() {
			errs = append(errs, ignoreGone(os.Remove(s.logFile(b.ID))))
		}
	}
	return errors.Join(errs...)
}

// sweepUploads removes uploaded files that no build used for a while.
func (s *Service) sweepUploads() error {
	all, err := os.ReadDir(s.filesDir())
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range all {
		dir := filepath.Join(s.filesDir(), e.Name())
		errs = append(errs, s.sweepFiles(dir, func(_ string, age time.Duration) bool { return age > s.filesAge() }))
		// This succeeds only if the directory is empty. An upload makes it again.
		if err := os.Remove(dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			continue
		}
	}
	return errors.Join(errs...)
}

// sweepFiles removes the files and directories in dir that are old.
func (s *Service) sweepFiles(dir string, old func(name string, age time.Duration) bool) error {
	all, err := os.ReadDir(dir)
	if err != nil {
		return ignoreGone(err)
	}
	var errs []error
	for _, e := range all {
		fi, err := e.Info()
		if err != nil {
			errs = append(errs, ignoreGone(err))
			continue
		}
		if old(e.Name(), s.opts.Now().Sub(fi.ModTime())) {
			errs = append(errs, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}
