// Package template builds templates from the steps that E2B's SDKs send, and
// starts sandboxes of them. A template is an image with the user, the directory,
// the commands and the sizes of its sandboxes.
//
// Package app makes the [Service], and package e2bapi/templates serves it. A build
// is requested, then its files arrive, then [Service.Begin] queues it. The server
// that took the steps works on it in the background. If that server dies, the sweep
// of another one, or of the next, records the build as failed and removes its
// remains. [Service.Run] sweeps until its context ends, and then ends the builds of
// this process.
//
// Everything belongs to a principal: templates, names, tags, uploaded files, and
// the sandbox of a build. The locks of a Service are held for its maps, and for
// the list of a principal's archives.
package template

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/fair"
	"github.com/glovebox-dev/glovebox/internal/imagebuild"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
	"github.com/glovebox-dev/glovebox/internal/store"
)

// The records of the store, which callers read.
type (
	Template = store.Template
	Build    = store.TemplateBuild
	Tag      = store.TemplateTag
)

// The states of a build that callers distinguish.
const (
	Running = store.BuildRunning
	Ready   = store.BuildReady
	Failed  = store.BuildFailed
)

// ErrTooLong is wrapped by the error for an archive that is too long.
var ErrTooLong = errors.New("the archive is too long")

// Bounds on the objects of one principal.
const (
	maxTemplates  = 50
	maxTags       = store.MaxTags // of a template
	maxUnfinished = 10            // builds
	maxKept       = 50            // builds of a template that are over and have no image
	keptFor       = 7 * 24 * time.Hour
	maxSteps      = 1000
	maxCommand    = 16 << 10 // bytes of a start or a ready command
	maxUser       = 256      // bytes of a user and a group
	maxPath       = 4096     // bytes of a directory, as in Linux
	// maxUploads bounds the files of a principal that wait for builds, as a multiple
	// of [Options.ContextSize].
	maxUploads = 4
	// maxArchives bounds their number. Each COPY of a build may have one.
	maxArchives = maxSteps
)

// queueTime bounds how long a build waits for its steps, and for its turn.
const queueTime = time.Hour

// Images are the images of the driver. Package app implements it.
type Images interface {
	// FetchImage returns the image that a principal's reference names, and pulls it
	// for the principal if it is not here.
	FetchImage(ctx context.Context, p sandbox.Principal, ref string, progress func(sandbox.ImageProgress)) (sandbox.Image, error)
	// ForgetImages removes the records of images that are no longer here.
	ForgetImages(ctx context.Context) error
	ExtendImage(ctx context.Context, order driver.ImageExtension) (sandbox.Image, error)
	Images(ctx context.Context) ([]sandbox.Image, error)
	RemoveImage(ctx context.Context, ref string) (freed int64, err error)
}

// Options are the arguments of [New]. All must be set, unless they say otherwise.
type Options struct {
	Store     *store.Store
	Sandboxes imagebuild.Sandboxes
	Images    Images
	Driver    string // its name in the records of images
	Owner     string // this process in the records of builds
	Dir       string // for uploaded files and logs; made if it is missing
	Log       *slog.Logger
	Now       func() time.Time

	// Maximum are the operator's limits; zeros are no limits. Network is the network
	// of builds. ProgramTime bounds each command of a build.
	Maximum     sandbox.Limits
	Network     sandbox.Network
	ProgramTime time.Duration
	// ImageSpace bounds the images of a principal's templates, in bytes; zero is no
	// limit. Images that share layers count them each.
	ImageSpace int64
	// ContextSize bounds an uploaded archive, in bytes. Builds is the number of
	// builds in progress, and BuildTime bounds each. ReadyTime bounds how long a
	// sandbox may take to be ready.
	ContextSize int64
	Builds      int
	BuildTime   time.Duration
	ReadyTime   time.Duration
}

// A Service keeps and builds templates. It is safe for concurrent use.
type Service struct {
	opts  Options
	turns *fair.Pool

	work  context.Context // ends with the service
	close context.CancelCauseFunc
	group sync.WaitGroup

	mu   sync.Mutex
	live map[string]*liveBuild // builds of this process that are not over, by ID

	uploadsMu sync.Mutex // also held while the archives of a principal are counted
	uploads   map[sandbox.Principal]uploading
}

// A liveBuild is a build that this process works on.
type liveBuild struct {
	log    *buildLog
	ctx    context.Context // ends the build
	cancel context.CancelCauseFunc
	done   chan struct{}
}

// New returns a Service.
func New(o Options) (*Service, error) {
	s := &Service{opts: o, live: map[string]*liveBuild{}, uploads: map[sandbox.Principal]uploading{}, turns: fair.New(fair.Options{
		Name: "builds of templates", Total: int64(o.Builds), MaxWaiting: maxUnfinished, RetryAfter: 10 * time.Second,
	})}
	for _, dir := range []string{s.filesDir(), s.workDir(), s.logsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, sandbox.Errorf(sandbox.Unavailable, "make directory of templates: %w", err)
		}
	}
	s.work, s.close = context.WithCancelCause(context.Background())
	return s, nil
}

func (s *Service) filesDir() string { return filepath.Join(s.opts.Dir, "files") }
func (s *Service) workDir() string  { return filepath.Join(s.opts.Dir, "work") }
func (s *Service) logsDir() string  { return filepath.Join(s.opts.Dir, "logs") }

// errEnding is the cause of the end of builds when the server ends.
var errEnding = sandbox.WithHint(sandbox.Errorf(sandbox.Unavailable, "the server ended during the build"), "build it again")

// Run sweeps at once, and then every minute until ctx ends. Then it ends the builds
// of this process, and returns when their remains are gone.
func (s *Service) Run(ctx context.Context) {
	every := time.NewTicker(time.Minute)
	defer every.Stop()
	for {
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil {
			s.opts.Log.Warn("sweep templates", "error", err)
		}
		select {
		case <-ctx.Done():
			s.mu.Lock()
			s.close(errEnding)
			s.mu.Unlock()
			s.group.Wait()
			return
		case <-every.C:
		}
	}
}

// Turns returns the pool of builds in progress.
func (s *Service) Turns() *fair.Pool { return s.turns }

// A Setup says how sandboxes of a build start.
type Setup struct {
	CPUs     int   `json:"cpus"`
	MemoryMB int64 `json:"memory_mb"`
	// User runs programs, in WorkDir. Start is a command that runs in the background
	// of each sandbox, and Ready a command that succeeds once the sandbox can be
	// used; both may be empty.
	User    string `json:"user,omitempty"`
	WorkDir string `json:"workdir,omitempty"`
	Start   string `json:"start,omitempty"`
	Ready   string `json:"ready,omitempty"`
}

// SetupOf returns the setup of a build.
func SetupOf(b Build) (Setup, error) {
	var s Setup
	if err := json.Unmarshal(b.Setup, &s); err != nil {
		return s, sandbox.Errorf(sandbox.Internal, "read setup of build %s: %w", b.ID, err)
	}
	return s, nil
}

// An Order asks for a build.
type Order struct {
	// Name is the name of the template, with or without a tag. Tags are more tags.
	Name string
	Tags []string
	// CPUs and MemoryMB are the sizes of its sandboxes; zeros are the defaults.
	CPUs     int
	MemoryMB int64
}

// Request records a build of a principal's template, and makes the template if it
// does not exist. The build then waits for [Service.Begin].
func (s *Service) Request(ctx context.Context, p sandbox.Principal, o Order) (Template, Build, error) {
	name, tag, err := parseName(o.Name)
	if err != nil {
		return Template{}, Build{}, err
	}
	if serverNames[name] != "" {
		return Template{}, Build{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: %s means the server's own image", name), "choose another name")
	}
	// A name must not be mistaken for a template of another principal.
	if idForm.MatchString(name) {
		return Template{}, Build{}, sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: %s has the form of a template's ID: 20 letters and digits", quote(name)),
			"choose a name of another length, or with a - in it")
	}
	tags, err := parseTags(o.Tags)
	if err != nil {
		return Template{}, Build{}, err
	}
	if tag != "" {
		tags = append([]string{tag}, tags...)
	}
	if len(tags) == 0 {
		tags = []string{DefaultTag}
	}
	tags = unique(tags)
	if o.CPUs < 0 || o.CPUs > 1<<16 {
		return Template{}, Build{}, sandbox.Errorf(sandbox.Invalid, "cpuCount: %d is not a number of processors", o.CPUs)
	}
	const least = sandbox.MinMemoryBytes >> 20
	if o.MemoryMB != 0 && o.MemoryMB < least || o.MemoryMB > 1<<30 {
		return Template{}, Build{}, sandbox.Errorf(sandbox.Invalid, "memoryMB: %d is not at least %d", o.MemoryMB, least)
	}
	setup, err := json.Marshal(Setup{CPUs: o.CPUs, MemoryMB: o.MemoryMB})
	if err != nil {
		return Template{}, Build{}, err
	}
	if err := s.roomForTags(ctx, p, name, tags); err != nil {
		return Template{}, Build{}, err
	}
	b := Build{ID: newBuildID(), Tags: tags, Setup: setup, Status: store.BuildRequested}
	t, err := s.opts.Store.AddTemplateBuild(ctx, Template{ID: newTemplateID(), Principal: p, Name: name}, b, maxTemplates, maxUnfinished)
	if err != nil {
		return Template{}, Build{}, err
	}
	b.Template = t.ID
	return t, b, nil
}

// roomForTags checks that a template may have further tags.
func (s *Service) roomForTags(ctx context.Context, p sandbox.Principal, name string, tags []string) error {
	t, err := s.opts.Store.Template(ctx, p, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		return nil
	}
	if err != nil {
		return err
	}
	has, err := s.opts.Store.TemplateTags(ctx, t.ID)
	if err != nil {
		return err
	}
	all := tags
	for _, g := range has {
		all = append(all, g.Tag)
	}
	if n := len(unique(all)); n > maxTags {
		return sandbox.WithHint(sandbox.Errorf(sandbox.Exhausted, "tags: the template would have %d tags; the maximum is %d", n, maxTags), "remove tags that you do not need")
	}
	return nil
}

// List returns the templates of a principal, the newest first.
func (s *Service) List(ctx context.Context, p sandbox.Principal) ([]Template, error) {
	return s.opts.Store.Templates(ctx, p)
}

// Get returns a principal's template by its ID or its name, with its builds, the
// newest first.
func (s *Service) Get(ctx context.Context, p sandbox.Principal, idOrName string) (Template, []Build, error) {
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return Template{}, nil, err
	}
	builds, err := s.opts.Store.TemplateBuilds(ctx, t.ID)
	return t, builds, err
}

// Build returns a build of a principal's template.
func (s *Service) Build(ctx context.Context, p sandbox.Principal, template, id string) (Build, error) {
	t, err := s.find(ctx, p, template)
	if err != nil {
		return Build{}, err
	}
	return s.opts.Store.TemplateBuild(ctx, t.ID, id)
}

// find returns a template by its ID or its name, which may have a tag.
func (s *Service) find(ctx context.Context, p sandbox.Principal, idOrName string) (Template, error) {
	name, _, err := parseName(idOrName)
	if err != nil {
		return Template{}, sandbox.Errorf(sandbox.NotFound, "there is no template %s", quote(idOrName))
	}
	t, err := s.opts.Store.Template(ctx, p, name)
	if sandbox.KindOf(err) == sandbox.NotFound {
		err = sandbox.Errorf(sandbox.NotFound, "there is no template %s", quote(idOrName))
	}
	return t, err
}

// Resolve returns the template and the ready build that a name means. Without a tag
// it is the build with the tag [DefaultTag], or the only build if no build has that.
// The error is of kind NotFound if there is none.
func (s *Service) Resolve(ctx context.Context, p sandbox.Principal, idOrName string) (Template, Build, error) {
	_, tag, err := parseName(idOrName)
	if err != nil {
		return Template{}, Build{}, sandbox.Errorf(sandbox.NotFound, "there is no template %s", quote(idOrName))
	}
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return Template{}, Build{}, err
	}
	tags, err := s.opts.Store.TemplateTags(ctx, t.ID)
	if err != nil {
		return Template{}, Build{}, err
	}
	id := ""
	for _, g := range tags {
		if g.Tag == tag || tag == "" && g.Tag == DefaultTag {
			id = g.Build
		}
	}
	if id == "" {
		return Template{}, Build{}, noBuild(t, tag, tags)
	}
	b, err := s.opts.Store.TemplateBuild(ctx, t.ID, id)
	return t, b, err
}

func noBuild(t Template, tag string, tags []Tag) error {
	if tag == "" {
		tag = DefaultTag
	}
	err := sandbox.Errorf(sandbox.NotFound, "template %s has no ready build with the tag %s", t.Name, tag)
	if len(tags) == 0 {
		return sandbox.WithHint(err, "build it, and wait until the build is ready")
	}
	return sandbox.WithHint(err, "name a tag, such as %s:%s", t.Name, tags[0].Tag)
}

// Tags returns the tags of a principal's template.
func (s *Service) Tags(ctx context.Context, p sandbox.Principal, idOrName string) ([]Tag, error) {
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return nil, err
	}
	return s.opts.Store.TemplateTags(ctx, t.ID)
}

// Tag gives the build that target names further tags, and returns all that it was
// asked for.
func (s *Service) Tag(ctx context.Context, p sandbox.Principal, target string, tags []string) (build string, given []string, err error) {
	_, from, err := parseName(target)
	if err != nil {
		return "", nil, err
	}
	if from == "" {
		from = DefaultTag
	}
	if given, err = parseTags(tags); err != nil {
		return "", nil, err
	}
	if len(given) == 0 {
		return "", nil, sandbox.Errorf(sandbox.Invalid, "tags: there are none")
	}
	t, err := s.find(ctx, p, target)
	if err != nil {
		return "", nil, err
	}
	if build, err = s.opts.Store.TagBuild(ctx, t.ID, from, given, maxTags); err != nil {
		return "", nil, err
	}
	return build, given, s.dropOld(ctx, t.ID)
}

// Untag removes tags of a principal's template. The image of a build without a tag
// is removed.
func (s *Service) Untag(ctx context.Context, p sandbox.Principal, idOrName string, tags []string) error {
	gone, err := parseTags(tags)
	if err != nil {
		return err
	}
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return err
	}
	if err := s.opts.Store.RemoveTags(ctx, t.ID, gone); err != nil {
		return err
	}
	return s.dropOld(ctx, t.ID)
}

// Delete ends the builds of a principal's template, and removes it with its images.
// Its sandboxes continue to run.
func (s *Service) Delete(ctx context.Context, p sandbox.Principal, idOrName string) error {
	t, err := s.find(ctx, p, idOrName)
	if err != nil {
		return err
	}
	builds, err := s.opts.Store.TemplateBuilds(ctx, t.ID)
	if err != nil {
		return err
	}
	for _, b := range builds {
		if err := s.end(ctx, b.ID, sandbox.Errorf(sandbox.Conflict, "the template was deleted")); err != nil {
			return err
		}
	}
	if err := s.opts.Store.RemoveTemplate(ctx, t.ID); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, removeTime)
	defer cancel()
	for _, b := range builds {
		if err := s.forget(ctx, b); err != nil {
			// The next sweep finds its remains without a record.
			s.opts.Log.Warn("remove build of template", "template", t.ID, "build", b.ID, "error", err)
		}
	}
	return nil
}

// end ends a build of this process, and waits until its remains are gone.
func (s *Service) end(ctx context.Context, id string, why error) error {
	s.mu.Lock()
	l := s.live[id]
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	l.cancel(why)
	select {
	case <-l.done:
		return nil
	case <-ctx.Done():
		return sandbox.Errorf(sandbox.Unavailable, "end build %s: %w", id, context.Cause(ctx))
	}
}

// Limits returns the limits of a setup's sandboxes, within the operator's maxima.
// Zeros are the defaults.
func (s *Service) Limits(setup Setup) sandbox.Limits {
	l := sandbox.Limits{CPUs: float64(setup.CPUs), MemoryBytes: setup.MemoryMB << 20}
	if most := s.opts.Maximum.CPUs; most > 0 {
		l.CPUs = min(l.CPUs, most)
	}
	if most := s.opts.Maximum.MemoryBytes; most > 0 {
		l.MemoryBytes = min(l.MemoryBytes, most)
	}
	return l
}

// Used records that a sandbox was made of a template.
func (s *Service) Used(ctx context.Context, template string) error {
	return s.opts.Store.TemplateUsed(ctx, template)
}

// Owner returns the principal of a template.
func (s *Service) Owner(ctx context.Context, template string) (sandbox.Principal, error) {
	return s.opts.Store.TemplateOwner(ctx, template)
}
