package operator

import (
	"context"
	"errors"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// maxTags bounds how many images a hint names.
const maxTags = 5

// SuggestImage returns the error of an image that is not here with another hint, if
// images of the same name but with another tag are here. A name without a tag means
// the tag latest, as in Docker, so Glovebox does not choose one of them.
func (o *Operator) SuggestImage(ctx context.Context, ref string, err error) error {
	k, noKeeper := driver.Images(o.driver)
	if err == nil || noKeeper != nil || errors.Is(err, sandbox.Invalid) || ctx.Err() != nil {
		return err
	}
	name, nameErr := k.ImageName(ref)
	list, listErr := k.Images(ctx)
	if nameErr != nil || listErr != nil {
		return err // it is the cause of these, or more important
	}
	var tags []string
	for _, i := range list {
		if i.Name == name {
			return err // the image is here, and the error has another cause
		}
		if repository(i.Name) == repository(name) && len(tags) < maxTags {
			tags = append(tags, i.Name)
		}
	}
	if len(tags) == 0 {
		return err
	}
	return sandbox.WithHint(err, "images with other tags are here: %s", strings.Join(tags, ", "))
}

// repository returns the name of an image without its tag and digest.
func repository(name string) string {
	name, _, _ = strings.Cut(name, "@")
	if i := strings.LastIndexByte(name, ':'); i > strings.LastIndexByte(name, '/') {
		name = name[:i]
	}
	return name
}
