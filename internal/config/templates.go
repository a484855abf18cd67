package config

import "fmt"

// Templates configures the templates that E2B's SDKs build, on drivers that build
// images in a sandbox.
type Templates struct {
	// ContextSize bounds the archive of one copy instruction, in bytes. A principal
	// may have four times as many bytes in archives that wait for builds.
	ContextSize Bytes `yaml:"context_size"`
	// ImageSpace bounds the images of one principal's templates, each with its base,
	// in bytes; 0 is no limit. Images.Space does not remove them.
	ImageSpace Bytes `yaml:"image_space"`
	// Builds is the number of builds in progress, and BuildTime bounds each.
	Builds    int      `yaml:"builds"`
	BuildTime Duration `yaml:"build_time"`
	// ReadyTime bounds how long a sandbox may take until its ready command succeeds.
	ReadyTime Duration `yaml:"ready_time"`
}

func (t *Templates) validate() error {
	if t.ContextSize < 1 {
		return invalid("templates.context_size", fmt.Sprintf("%d is not a size", int64(t.ContextSize)), "write it like 1GiB")
	}
	if t.ImageSpace < 0 {
		return invalid("templates.image_space", fmt.Sprintf("%d is not a size", int64(t.ImageSpace)), "write it like 10GiB, or 0 for no limit")
	}
	if t.Builds < 1 {
		return invalid("templates.builds", fmt.Sprintf("%d is not a number of builds", t.Builds), "set it to 1 or more")
	}
	for name, d := range map[string]Duration{"build_time": t.BuildTime, "ready_time": t.ReadyTime} {
		if d <= 0 {
			return invalid("templates."+name, "is not above 0", "write it like 30m")
		}
	}
	return nil
}
