// Package sealed encrypts files, so that a change of one is noticed and a file opens only
// under its own name.
//
// It is the STREAM construction with AES-256-GCM: the content is encrypted in chunks of
// [chunkSize] bytes. The nonce of a chunk is its number and a byte that marks the last
// one, so chunks can be neither exchanged nor left out nor added. The key of a file is
// derived by HKDF from the caller's key, a random salt, and the names of the file. The
// salt is at the beginning of the file.
//
// A [Writer] and a [Reader] belong to one goroutine. They hold one chunk, and have no
// other resources.
package sealed
