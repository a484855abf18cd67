package config

import (
	"slices"
	"strings"
)

// variablePrefix begins the names of Glovebox's own environment variables.
const variablePrefix = "GLOVEBOX_"

// otherVariables are the variables of Glovebox's terminals, installers, containers, releases
// and tests. Load does not read them, but they are no mistakes.
var otherVariables = []string{
	"GLOVEBOX_INSTALL_DIR", "GLOVEBOX_RELEASES", "GLOVEBOX_VERSION", // install.sh, install.ps1
	"GLOVEBOX_PICTURES",                             // package cli/screen
	"GLOVEBOX_BIND", "GLOVEBOX_GID", "GLOVEBOX_UID", // deploy
	"GLOVEBOX_RELEASE_KEY", "GLOVEBOX_RELEASE_PASSWORD", // release
	"GLOVEBOX_BUN", "GLOVEBOX_CONVERSATIONS", "GLOVEBOX_CONVERSATIONS_POOL", "GLOVEBOX_FIGURES", "GLOVEBOX_NODES", "GLOVEBOX_PYTHONS", "GLOVEBOX_REQUIRE", "GLOVEBOX_SCREENSHOTS", "GLOVEBOX_SOAK", "GLOVEBOX_URL", // tests
}

// testPrefixes begin the names of other variables of tests.
var testPrefixes = []string{"GLOVEBOX_TEST_", "GLOVEBOX_DRIVERTEST_", "GLOVEBOX_E2B_TEST_", "GLOVEBOX_APP_SOAK"}

// An UnknownVariable is an environment variable that begins with GLOVEBOX_ and that
// Load does not read. Like is the similar name of a variable that it reads, or "".
type UnknownVariable struct{ Name, Like string }

// UnknownVariables returns the unknown variables of an environment of the form
// NAME=VALUE, sorted by name. A variable without a value counts as unset.
func UnknownVariables(environ []string) []UnknownVariable {
	known := Variables()
	var list []UnknownVariable
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		if value == "" || !strings.HasPrefix(name, variablePrefix) || slices.Contains(known, name) || slices.Contains(otherVariables, name) ||
			slices.ContainsFunc(testPrefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		u, least := UnknownVariable{Name: name}, 3
		for _, other := range known {
			if d := distance(name, other); d < least {
				u.Like, least = other, d
			}
		}
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b UnknownVariable) int { return strings.Compare(a.Name, b.Name) })
	return list
}
