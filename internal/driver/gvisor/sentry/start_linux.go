package sentry

import (
	"errors"
	"os"
	_ "unsafe" // for go:linkname

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/pkg/sentry/pgalloc"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/container"
	runsc "gvisor.dev/gvisor/runsc/sandbox"

	"github.com/glovebox-dev/glovebox/internal/driver/gvisor/diagnosis"
)

//go:linkname modifySpecForDirectfs gvisor.dev/gvisor/runsc/container.modifySpecForDirectfs
func modifySpecForDirectfs(*config.Config, *specs.Spec) error

//go:linkname initGoferConfs gvisor.dev/gvisor/runsc/container.(*Container).initGoferConfs
func initGoferConfs(*container.Container, config.Overlay2, *boot.PodMountHints, *boot.RootfsHint) error

// StartOptions describe the sentry of one box.
type StartOptions struct {
	ID string
	// Dir is the directory of the box, with the specification in it.
	Dir string
	// Mounts are the files that the box sees, in the order of the specification.
	Mounts []*os.File
	// Passed are the files of the guest, by their descriptor there.
	Passed map[int]*os.File
	// Attached means that the sentry dies with this process.
	Attached bool
}

// Start starts the sentry of a box, up to the point where it waits for the start of
// the guest. It does the work of gVisor's own functions for containers, but starts
// no gofer and stores less.
func Start(conf *config.Config, spec *specs.Spec, o StartOptions) (*runsc.Sandbox, error) {
	if err := modifySpecForDirectfs(conf, spec); err != nil {
		return nil, err
	}
	rootHint, err := boot.NewRootfsHint(spec)
	if err != nil {
		return nil, err
	}
	hints, err := boot.NewPodMountHints(spec)
	if err != nil {
		return nil, err
	}
	c := &container.Container{ID: o.ID, Spec: spec, BundleDir: o.Dir}
	if err := initGoferConfs(c, conf.GetOverlay2(), hints, rootHint); err != nil {
		return nil, err
	}
	written, err := openUpper(o.Dir)
	if err != nil {
		return nil, err
	}
	defer written.Close()
	kernel, err := runsc.New(conf, &runsc.Args{
		ID:                  o.ID,
		Spec:                spec,
		BundleDir:           o.Dir,
		IOFiles:             o.Mounts,
		GoferFilestoreFiles: []*os.File{written},
		GoferMountConfs:     c.GoferMountConfs,
		MountHints:          hints,
		Attached:            o.Attached,
		PassFiles:           o.Passed,
	})
	if err != nil {
		return nil, diagnosis.ExplainStart(err)
	}
	return kernel, nil
}

// openUpper makes the file for all data that a box writes outside of its workspace.
// It has no name, so that it disappears with the box. The caller closes it.
func openUpper(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, "upper-")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	pgalloc.IMAWorkAroundForMemFile(file.Fd())
	return file, nil
}
