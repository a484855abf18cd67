package fair

import (
	"cmp"
	"slices"

	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// InTurn sorts a list so that principals take turns: the first element of each, then
// the second of each, and so on. It changes the list, and returns it.
func InTurn[T any](list []T, of func(T) sandbox.Principal) []T {
	type placed struct {
		nth int
		v   T
	}
	seen := map[sandbox.Principal]int{}
	places := make([]placed, len(list))
	for i, v := range list {
		places[i] = placed{seen[of(v)], v}
		seen[of(v)]++
	}
	slices.SortStableFunc(places, func(a, b placed) int { return cmp.Compare(a.nth, b.nth) })
	for i, p := range places {
		list[i] = p.v
	}
	return list
}
