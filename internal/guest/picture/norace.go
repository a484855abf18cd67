//go:build !race

package picture

const raceFactor = 1
