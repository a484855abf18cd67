package images

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/engine/excerpt"
	"github.com/glovebox-dev/glovebox/internal/engine/request"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// An image belongs to the operator or to the principals for which it was
// pulled. Its labels count for them only, so that no principal decides which
// image runs another's code. The store records the owner of an image by its
// digest, because a name can come to stand for another image.
//
// An image without a record is the operator's if it was made or loaded here. It
// is also the operator's if a container engine keeps the images, because the
// operator adds images to that without Glovebox. This holds because a pull for
// a principal is recorded by its name before it begins, and by its digest when
// it ends. In the store of an embedded driver, every other image without a
// record has no known owner.

// An imageOwner is the owner of an image, as one principal sees it. A lower
// value makes a better runner.
type imageOwner int

const (
	operatorMade    imageOwner = iota // the operator's, made or loaded here
	operatorFetched                   // the operator's, from a registry
	ownImage                          // pulled for the principal
	unknownImage                      // the owner is not known, as there is no record
	foreignImage                      // pulled for others only
)

// settleTimeout bounds the end of a pull that brought no image, and pullTimeout a
// pull.
const (
	settleTimeout = 10 * time.Second
	pullTimeout   = 30 * time.Minute
)

// A book is a snapshot of the records of images.
type book struct {
	store.ImageRecords
	engine bool                // images without a record are the operator's
	names  map[string][]string // of images, by ID, if pulls are in progress
}

// book reads the records of images. The caller must list the images first:
// a pulled image then has its own record, or the record of its pull.
func (s *Images) book(ctx context.Context, k driver.ImageKeeper) (*book, error) {
	b := &book{engine: s.features.EngineImages, names: map[string][]string{}}
	var err error
	if b.ImageRecords, err = s.opts.Records.ImageRecords(ctx, s.name); err != nil {
		return nil, err
	}
	if !b.Survey && len(b.Pulls) == 0 {
		return b, nil
	}
	list, err := k.Images(ctx)
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		b.names[i.ID] = append(b.names[i.ID], i.Name)
	}
	if !b.Survey {
		return b, nil
	}
	var unknown []string
	for _, i := range list {
		if !i.Local {
			unknown = append(unknown, i.ID)
		}
	}
	if err := s.opts.Records.SurveyImages(ctx, s.name, unknown); err != nil {
		return nil, err
	}
	b.ImageRecords, err = s.opts.Records.ImageRecords(ctx, s.name)
	return b, err
}

// owner returns the owner of an image as p sees it. p may be
// [store.OperatorImage].
func (b *book) owner(i sandbox.Image, p sandbox.Principal) imageOwner {
	of := b.Principals[i.ID]
	if len(of) == 0 {
		names := append(b.names[i.ID], i.Name)
		for _, pull := range b.Pulls {
			if slices.Contains(names, pull.Name) {
				of = append(of, pull.Principal)
			}
		}
	}
	switch {
	case slices.Contains(of, store.OperatorImage), len(of) == 0 && (i.Local || b.engine && i.Name != ""):
		if i.Local {
			return operatorMade
		}
		return operatorFetched
	case slices.Contains(of, p):
		return ownImage
	case len(of) == 0 || slices.Contains(of, store.UnknownImage):
		return unknownImage
	}
	return foreignImage
}

// fetch returns the image that a principal's reference names. It takes a
// local image unless that was pulled for other principals only. For this
// principal, the name then stands for the image in the registry.
func (s *Images) fetch(ctx context.Context, k driver.ImageKeeper, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	i, err := k.Image(ctx, ref)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return sandbox.Image{}, err
	}
	if err == nil {
		known, err := s.book(ctx, k)
		if err != nil {
			return sandbox.Image{}, err
		}
		if known.owner(i, p) != foreignImage {
			return i, nil
		}
		if isIDOf(ref, i) {
			err := sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is another principal's", excerpt.Quote(ref)), "glovebox images adopt makes it the operator's")
			return sandbox.Image{}, s.unavailable(p, ref, err)
		}
	}
	return s.pull(ctx, k, p, driver.ImagePull{Ref: ref, Anywhere: s.isOperator(p), Progress: progress})
}

// isIDOf reports whether a reference names an image by a digest and nothing
// else.
func isIDOf(ref string, i sandbox.Image) bool {
	_, digits, _ := strings.Cut(i.ID, ":")
	const least = 12 // digits that drivers accept as an ID
	return ref == i.ID || ref == i.Digest || len(ref) >= least && strings.HasPrefix(digits, ref)
}

// isOperator reports whether a principal is the person at a command line.
func (s *Images) isOperator(p sandbox.Principal) bool {
	return p == sandbox.Local && s.opts.CommandLine || p == store.OperatorImage
}

// pull has the driver fetch an image for a principal, and records its
// owner. Every pull of the engine goes through it. A pull fills the disk and
// needs memory for unpacking, so it first waits for a place among the pulls.
func (s *Images) pull(ctx context.Context, k driver.ImageKeeper, p sandbox.Principal, order driver.ImagePull) (sandbox.Image, error) {
	name, err := k.ImageName(order.Ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	place, err := s.pulls.Acquire(ctx, fair.Request{Principal: p, Units: 1})
	if err != nil {
		return sandbox.Image{}, sandbox.Wrap(err, "image", excerpt.Quote(order.Ref))
	}
	defer place.Release()
	operators, err := s.operators(ctx, k)
	if err != nil {
		return sandbox.Image{}, err
	}
	id, err := s.opts.Records.BeginImagePull(ctx, s.name, name, p)
	if err != nil {
		return sandbox.Image{}, err
	}
	i, err := k.PullImage(ctx, order)
	if err != nil {
		return sandbox.Image{}, errors.Join(s.unavailable(p, order.Ref, err), s.settle(ctx, k, id, name))
	}
	// WithoutCancel: the image is here, even if the caller has gone.
	return i, s.opts.Records.EndImagePull(context.WithoutCancel(ctx), id, i.ID, slices.Contains(operators, i.ID))
}

// operators returns the IDs of images that are the operator's without a
// record. A pull that brings one of them for a principal must not take it away
// from the others. It also forgets images that are gone, but not the images of
// a container engine: such an image would become the operator's without its
// record.
func (s *Images) operators(ctx context.Context, k driver.ImageKeeper) ([]string, error) {
	at := s.opts.Records.Now()
	list, err := k.Images(ctx)
	if err != nil {
		return nil, err
	}
	known, err := s.book(ctx, k)
	if err != nil {
		return nil, err
	}
	var all, operators []string
	for _, i := range list {
		all = append(all, i.ID)
		if known.owner(i, store.OperatorImage) < ownImage {
			operators = append(operators, i.ID)
		}
	}
	if s.features.EngineImages {
		return operators, nil
	}
	return operators, s.opts.Records.ForgetImages(ctx, s.name, all, at)
}

// settle ends a pull that apparently brought no image. If there is a new
// image with its name, that image belongs to the principal.
func (s *Images) settle(ctx context.Context, k driver.ImageKeeper, id int64, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleTimeout)
	defer cancel()
	i, err := k.Image(ctx, name)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return err // the record of the pull stays, for the sweep
	}
	if err == nil {
		book, err := s.opts.Records.ImageRecords(ctx, s.name)
		if err != nil {
			return err
		}
		if len(book.Principals[i.ID]) > 0 {
			i.ID = "" // it was here before the pull
		}
	}
	return s.opts.Records.EndImagePull(ctx, id, i.ID, false)
}

// SweepPulls ends the pulls of processes that were killed.
func (s *Images) SweepPulls(ctx context.Context) error {
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return nil // this driver keeps no images
	}
	book, err := s.opts.Records.ImageRecords(ctx, s.name)
	if err != nil {
		return err
	}
	var errs []error
	for _, pull := range book.Pulls {
		if s.opts.Now().Sub(pull.Begun) > pullTimeout+time.Minute {
			errs = append(errs, s.settle(ctx, k, pull.ID, pull.Name))
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep pulls of images", "")
}

// unavailable returns the error for an image that a principal does not get. It does
// not depend on the registry or the network, because only the operator may know
// which hosts this machine reaches.
func (s *Images) unavailable(p sandbox.Principal, ref string, err error) error {
	if s.isOperator(p) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image: %s was not here in time", excerpt.Quote(ref)),
			"try again: what was fetched is not fetched again")
	}
	switch sandbox.KindOf(err) {
	case sandbox.Invalid, sandbox.Exhausted, sandbox.Unsupported:
		return err // a registry had the image, or none was asked
	}
	s.opts.Log.Warn("image not fetched", "principal", p, "image", ref, "error", err)
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image: %s is not here, and no registry gave it to this server", excerpt.Quote(ref)),
		unavailableHint)
}

// unavailableHint is the hint for every failure of a registry.
const unavailableHint = "check the name and the tag; the server's log tells the operator why, and images.registries allows registries without a public address"

// Fetch returns the image that a principal's reference names, and pulls it
// for the principal if it is not here.
func (s *Images) Fetch(ctx context.Context, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return sandbox.Image{}, err
	}
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return sandbox.Image{}, err
	}
	return s.fetch(ctx, k, p, ref, progress)
}

// Has reports whether the image that a principal's reference names is here, and may
// run its code. It asks no registry.
func (s *Images) Has(ctx context.Context, p sandbox.Principal, ref string) (bool, error) {
	if err := request.CheckPrincipal(p); err != nil {
		return false, err
	}
	if ref == sandbox.ImageHost {
		return s.features.Host, nil
	}
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return false, nil // this driver keeps no images
	}
	i, err := k.Image(ctx, ref)
	if errors.Is(err, sandbox.NotFound) || errors.Is(err, sandbox.Invalid) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	known, err := s.book(ctx, k)
	return err == nil && known.owner(i, p) != foreignImage, err
}

// Pull pulls an image for the operator, even if an image of that name is
// here. All principals may use it then.
func (s *Images) Pull(ctx context.Context, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return sandbox.Image{}, err
	}
	return s.pull(ctx, k, store.OperatorImage, driver.ImagePull{Ref: ref, Anywhere: true, Progress: progress})
}

// Adopt makes local images the operator's, so that all principals may use
// them.
func (s *Images) Adopt(ctx context.Context, images ...sandbox.Image) error {
	var ids []string
	for _, i := range images {
		ids = append(ids, i.ID)
	}
	return s.opts.Records.RecordImages(ctx, s.name, store.OperatorImage, ids...)
}

// Forget removes the records of images that are no longer here.
func (s *Images) Forget(ctx context.Context) error {
	k, err := driver.Images(s.opts.Driver)
	if err != nil {
		return err
	}
	at := s.opts.Records.Now()
	list, err := k.Images(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return s.opts.Records.ForgetImages(ctx, s.name, ids, at)
}
