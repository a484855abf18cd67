package answer

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// A ChangedFile is a file that a run changed.
type ChangedFile struct {
	sandbox.FileChange
	URL string `json:"url,omitempty"`
}

// ShownName returns the name of a file for models. Programs choose the names, so
// names with unprintable characters are quoted: a name cannot begin a line of its
// own. Names with quotes are also quoted, to be unambiguous.
func ShownName(name string) string {
	for _, r := range name {
		if !strconv.IsPrint(r) || r == '"' {
			return strconv.Quote(name)
		}
	}
	return name
}

// FileURI returns the URI of the resource for a file in a sandbox.
func FileURI(sandboxID, path string) string {
	return "sandbox://" + sandboxID + "/files" + (&url.URL{Path: path}).EscapedPath()
}

// changesText lists the changes for models.
func changesText(c *sandbox.Changes) string {
	if c == nil || c.Created+c.Modified+c.Removed == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "files: %d created, %d modified, %d removed:", c.Created, c.Modified, c.Removed)
	const most = 10
	for i, f := range c.Files {
		if i == most {
			break
		}
		mark := map[sandbox.Change]string{sandbox.FileCreated: "+", sandbox.FileModified: "~", sandbox.FileRemoved: "-"}[f.Change]
		fmt.Fprintf(&b, " %s%s", mark, ShownName(f.Path))
	}
	if total := c.Created + c.Modified + c.Removed; total > most {
		fmt.Fprintf(&b, " and %d more", total-most)
	}
	return b.String() + "\n"
}
