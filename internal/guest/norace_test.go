//go:build !race

package guest

const raceFactor = 1
