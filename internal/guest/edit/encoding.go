package edit

import (
	"encoding/binary"
	"errors"
	"unicode/utf16"
	"unicode/utf8"
)

// A form is the encoding of a file. Nil is bytes, which stay as they are: UTF-8
// with or without a byte order mark, or anything else.
type form struct {
	order interface {
		binary.ByteOrder
		binary.AppendByteOrder
	}
}

// decode returns the text of contents, in UTF-8 if they are UTF-16 with a byte order
// mark.
func decode(contents []byte) ([]byte, form, error) {
	var f form
	switch {
	case len(contents) >= 4 && contents[0] == 0xff && contents[1] == 0xfe && contents[2] == 0 && contents[3] == 0:
		return nil, f, errors.New("path: the file is UTF-32, and cannot be edited as text")
	case len(contents) >= 2 && contents[0] == 0xff && contents[1] == 0xfe:
		f.order = binary.LittleEndian
	case len(contents) >= 2 && contents[0] == 0xfe && contents[1] == 0xff:
		f.order = binary.BigEndian
	default:
		return contents, f, nil
	}
	broken := errors.New("path: the file begins like UTF-16, and is not UTF-16 throughout")
	if len(contents)%2 != 0 {
		return nil, f, broken
	}
	text := make([]byte, 0, len(contents)*3/4)
	for i := 0; i < len(contents); i += 2 {
		r := rune(f.order.Uint16(contents[i:]))
		if utf16.IsSurrogate(r) {
			if i += 2; i >= len(contents) {
				return nil, f, broken
			}
			if r = utf16.DecodeRune(r, rune(f.order.Uint16(contents[i:]))); r == utf8.RuneError {
				return nil, f, broken
			}
		}
		text = utf8.AppendRune(text, r)
	}
	return text, f, nil
}

// encode returns text in the encoding of the file.
func (f form) encode(text []byte) []byte {
	if f.order == nil {
		return text
	}
	out := make([]byte, 0, 2*len(text))
	var units []uint16
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		text = text[size:]
		units = utf16.AppendRune(units[:0], r)
		for _, u := range units {
			out = f.order.AppendUint16(out, u)
		}
	}
	return out
}
