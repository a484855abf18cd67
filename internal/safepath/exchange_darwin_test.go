package safepath

import "os"

// exchange swaps two names, in three steps.
func exchange(a, b string) {
	os.Rename(a, a+".swap")
	os.Rename(b, a)
	os.Rename(a+".swap", b)
}
