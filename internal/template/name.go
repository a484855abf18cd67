package template

import (
	"crypto/rand"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// DefaultTag is the tag of a build without another, and of a name without one.
const DefaultTag = "default"

// serverNames are the names of templates that are not a principal's: E2B's SDKs
// request them by default.
var serverNames = map[string]string{
	"base":                "e2bdev/base",
	"code-interpreter-v1": "e2bdev/code-interpreter",
	"code-interpreter":    "e2bdev/code-interpreter",
}

// Names are those that E2B accepts, without those of other teams.
var (
	nameForm  = regexp.MustCompile(`^[a-z0-9_-]{1,128}$`)
	tagForm   = regexp.MustCompile(`^[a-z0-9_.-]{1,128}$`)
	idForm    = regexp.MustCompile(`^[a-z2-7]{20}$`)
	buildForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// parseName splits a name and its tag, which may be missing. Upper-case letters
// become lower-case ones, as at E2B.
func parseName(text string) (name, tag string, err error) {
	name, tag, has := strings.Cut(strings.ToLower(strings.TrimSpace(text)), ":")
	if !nameForm.MatchString(name) {
		return "", "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "name: %s is not the name of a template", quote(text)),
			"use letters, digits, - and _")
	}
	if has {
		if tag, err = parseTag(tag); err != nil {
			return "", "", err
		}
	}
	return name, tag, nil
}

func parseTag(text string) (string, error) {
	tag := strings.ToLower(strings.TrimSpace(text))
	if !tagForm.MatchString(tag) || buildForm.MatchString(tag) {
		return "", sandbox.WithHint(sandbox.Errorf(sandbox.Invalid, "tags: %s is not a tag", quote(text)), "use letters, digits, -, _ and .")
	}
	return tag, nil
}

func parseTags(texts []string) ([]string, error) {
	if len(texts) > maxTags {
		return nil, sandbox.Errorf(sandbox.Exhausted, "tags: there are %d; the maximum is %d", len(texts), maxTags)
	}
	var tags []string
	for _, text := range texts {
		tag, err := parseTag(text)
		if err != nil {
			return nil, err
		}
		tags = append(tags, tag)
	}
	return unique(tags), nil
}

// unique returns the texts in order, each once.
func unique(texts []string) []string {
	texts = slices.Clone(texts)
	slices.Sort(texts)
	return slices.Compact(texts)
}

// newTemplateID returns an identifier in E2B's form, which matches idForm.
func newTemplateID() string { return strings.ToLower(rand.Text()[:20]) }

// newBuildID returns an identifier in E2B's form, a UUID of version 4.
func newBuildID() string {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// imagePrefix begins the names of the images of templates. It has the form of a
// registry that cannot exist, so that no image of a registry takes such a name.
const imagePrefix = "template.glovebox/"

// separators are runs of characters that references of images do not allow.
var separators = regexp.MustCompile(`[_-]+`)

// imageName returns the name of a build's image: template.glovebox/NAME:BUILD.
func imageName(template, build string) string {
	name := strings.Trim(separators.ReplaceAllString(template, "-"), "-")
	if name == "" {
		name = "unnamed"
	}
	return imagePrefix + name + ":" + build
}

// quote quotes and truncates a client's text for an error message.
func quote(s string) string { return fmt.Sprintf("%.80q", s) }
