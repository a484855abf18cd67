// Package picture makes the previews of pictures that models see. A [Maker] reads
// the header of a picture in the guest. It shrinks a picture that is too large in
// a process of its own, which [Main] is, with limits on its memory and its time.
// The same process turns a picture into sixels, which terminals display. Pictures
// are hostile data: no other part of the guest decodes them.
//
// Only package guest imports it. It hands the Preview method of its Maker, which
// lives as long as the guest, to files and contexts.
package picture
