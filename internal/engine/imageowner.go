package engine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// An image belongs to the operator or to the principals that had it pulled. What
// it says of itself counts for them only, so that no principal decides which image
// runs another's code. The store records the owner of an image by its digest: a
// name can stand for another image in a moment.
//
// An image without a record is the operator's if it was made or loaded here, or
// if an engine keeps the images, to which the operator adds without Glovebox.
// That holds because a pull for a principal is recorded by its name before it
// begins, and by its digest when it ends. In the store of an embedded driver every
// other image without a record is nobody's.

// An imageOwner tells whose an image is, as one principal sees it. The lower, the
// better the image is as a runner.
type imageOwner int

const (
	operatorMade    imageOwner = iota // the operator's, made or loaded here
	operatorFetched                   // the operator's, from a registry
	ownImage                          // pulled for the principal
	unknownImage                      // nobody's: there is no record
	foreignImage                      // pulled for others only
)

// maxPulls is how many images are pulled at one time. One principal alone pulls
// half as many.
const maxPulls = 4

// An imageBook is what is recorded of images.
type imageBook struct {
	store.ImageRecords
	engine bool                // images without a record are the operator's
	names  map[string][]string // of images, by ID, if pulls are under way
}

// imageBook reads what is recorded of images that were looked up before: one that
// was there then has its record by now, or that of its pull.
func (e *Engine) imageBook(ctx context.Context, k driver.ImageKeeper) (*imageBook, error) {
	b := &imageBook{engine: e.features.EngineImages, names: map[string][]string{}}
	var err error
	if b.ImageRecords, err = e.store.ImageRecords(ctx, e.name); err != nil {
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
	if err := e.store.SurveyImages(ctx, e.name, unknown); err != nil {
		return nil, err
	}
	b.ImageRecords, err = e.store.ImageRecords(ctx, e.name)
	return b, err
}

// owner returns whose an image is to a principal, which may be
// [store.OperatorImage].
func (b *imageBook) owner(i sandbox.Image, p sandbox.Principal) imageOwner {
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

// fetchImage returns the image that a reference of a principal names. An image
// that is here is taken unless only others had it pulled: for this principal the
// name then stands for what the registry has.
func (e *Engine) fetchImage(ctx context.Context, k driver.ImageKeeper, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	i, err := k.Image(ctx, ref)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return sandbox.Image{}, err
	}
	if err == nil {
		book, err := e.imageBook(ctx, k)
		if err != nil {
			return sandbox.Image{}, err
		}
		if book.owner(i, p) != foreignImage {
			return i, nil
		}
		if isIDOf(ref, i) {
			err := sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image %s is another principal's", shorten(ref)), "glovebox images adopt makes it the operator's")
			return sandbox.Image{}, e.noImage(p, ref, err)
		}
	}
	return e.pullImage(ctx, k, p, driver.ImagePull{Ref: ref, Anywhere: e.isOperator(p), Progress: progress})
}

// isIDOf reports whether a reference names an image by a digest and nothing else.
func isIDOf(ref string, i sandbox.Image) bool {
	_, digits, _ := strings.Cut(i.ID, ":")
	const least = 12 // digits that drivers take for an ID
	return ref == i.ID || ref == i.Digest || len(ref) >= least && strings.HasPrefix(digits, ref)
}

// isOperator reports whether a principal is the person at a command line.
func (e *Engine) isOperator(p sandbox.Principal) bool {
	return p == sandbox.Local && e.opts.CommandLine || p == store.OperatorImage
}

// pullImage has the driver fetch an image for a principal, and records whose it
// is. Every pull of the engine comes here. It waits for a place among the pulls
// first: a pull fills the disk, and takes memory for what it unpacks.
func (e *Engine) pullImage(ctx context.Context, k driver.ImageKeeper, p sandbox.Principal, order driver.ImagePull) (sandbox.Image, error) {
	name, err := k.ImageName(order.Ref)
	if err != nil {
		return sandbox.Image{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	place, err := e.pulls.Acquire(ctx, fair.Request{Principal: p, Units: 1})
	if err != nil {
		return sandbox.Image{}, sandbox.Wrap(err, "image", shorten(order.Ref))
	}
	defer place.Release()
	operators, err := e.operatorImages(ctx, k)
	if err != nil {
		return sandbox.Image{}, err
	}
	id, err := e.store.BeginImagePull(ctx, e.name, name, p)
	if err != nil {
		return sandbox.Image{}, err
	}
	i, err := k.PullImage(ctx, order)
	if err != nil {
		return sandbox.Image{}, errors.Join(e.noImage(p, order.Ref, err), e.settlePull(ctx, k, id, name))
	}
	// WithoutCancel: the image is here, whether or not the caller still is.
	return i, e.store.EndImagePull(context.WithoutCancel(ctx), id, i.ID, slices.Contains(operators, i.ID))
}

// operatorImages returns the IDs of images that are the operator's without a
// record: a pull that brings one of them for a principal must not take it away
// from all others. It also forgets images that are gone, but not those of an
// engine, to which one without a record would be the operator's.
func (e *Engine) operatorImages(ctx context.Context, k driver.ImageKeeper) ([]string, error) {
	at := e.store.Now()
	list, err := k.Images(ctx)
	if err != nil {
		return nil, err
	}
	book, err := e.imageBook(ctx, k)
	if err != nil {
		return nil, err
	}
	var all, operators []string
	for _, i := range list {
		all = append(all, i.ID)
		if book.owner(i, store.OperatorImage) < ownImage {
			operators = append(operators, i.ID)
		}
	}
	if e.features.EngineImages {
		return operators, nil
	}
	return operators, e.store.ForgetImages(ctx, e.name, all, at)
}

// settlePull ends a pull that brought no image, as far as is known: one with its
// name, if there is one, is the principal's.
func (e *Engine) settlePull(ctx context.Context, k driver.ImageKeeper, id int64, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	i, err := k.Image(ctx, name)
	if err != nil && !errors.Is(err, sandbox.NotFound) {
		return err // the record of the pull stays, for the sweep
	}
	if err == nil {
		book, err := e.store.ImageRecords(ctx, e.name)
		if err != nil {
			return err
		}
		if len(book.Principals[i.ID]) > 0 {
			i.ID = "" // it was here before
		}
	}
	return e.store.EndImagePull(ctx, id, i.ID, false)
}

// sweepPulls ends the pulls of processes that were killed.
func (e *Engine) sweepPulls(ctx context.Context) error {
	k, err := driver.Images(e.drv)
	if err != nil {
		return nil // this driver keeps none
	}
	book, err := e.store.ImageRecords(ctx, e.name)
	if err != nil {
		return err
	}
	var errs []error
	for _, pull := range book.Pulls {
		if e.now().Sub(pull.Begun) > pullTimeout+time.Minute {
			errs = append(errs, e.settlePull(ctx, k, pull.ID, pull.Name))
		}
	}
	return sandbox.Wrap(errors.Join(errs...), "sweep pulls of images", "")
}

// noImage is the error for an image that a principal does not get. It is the same
// whatever the registry, or the way to it, is like: what this machine reaches is
// the operator's to know.
func (e *Engine) noImage(p sandbox.Principal, ref string, err error) error {
	if e.isOperator(p) || errors.Is(err, context.Canceled) {
		return err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "image: %s was not here in time", shorten(ref)),
			"try again: what was fetched is not fetched again")
	}
	switch sandbox.KindOf(err) {
	case sandbox.Invalid, sandbox.Exhausted, sandbox.Unsupported:
		return err // a registry had it, or was not asked
	}
	e.log.Warn("image not fetched", "principal", p, "image", ref, "error", err)
	return sandbox.WithHint(sandbox.Errorf(sandbox.NotFound, "image: %s is not here, and no registry gave it to this server", shorten(ref)),
		noImageHint)
}

// noImageHint is the remedy for all that can be wrong with a registry.
const noImageHint = "check the name and the tag; the server's log tells the operator why, and images.registries allows registries without a public address"

// FetchImage returns the image that a reference of a principal names, pulled for
// the principal if it is not here.
func (e *Engine) FetchImage(ctx context.Context, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	if err := checkPrincipal(p); err != nil {
		return sandbox.Image{}, err
	}
	k, err := driver.Images(e.drv)
	if err != nil {
		return sandbox.Image{}, err
	}
	return e.fetchImage(ctx, k, p, ref, progress)
}

// PullImage pulls an image for the operator, whatever is here under its name: it
// is one for all principals then.
func (e *Engine) PullImage(ctx context.Context, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error) {
	k, err := driver.Images(e.drv)
	if err != nil {
		return sandbox.Image{}, err
	}
	return e.pullImage(ctx, k, store.OperatorImage, driver.ImagePull{Ref: ref, Anywhere: true, Progress: progress})
}

// AdoptImages makes images that are here the operator's: ones for all principals.
func (e *Engine) AdoptImages(ctx context.Context, images ...sandbox.Image) error {
	var ids []string
	for _, i := range images {
		ids = append(ids, i.ID)
	}
	return e.store.RecordImages(ctx, e.name, store.OperatorImage, ids...)
}

// ForgetImages forgets whose images were that are here no more.
func (e *Engine) ForgetImages(ctx context.Context) error {
	k, err := driver.Images(e.drv)
	if err != nil {
		return err
	}
	at := e.store.Now()
	list, err := k.Images(ctx)
	if err != nil {
		return err
	}
	var ids []string
	for _, i := range list {
		ids = append(ids, i.ID)
	}
	return e.store.ForgetImages(ctx, e.name, ids, at)
}
