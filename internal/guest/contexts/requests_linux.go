package contexts

import "io"

// request writes to the kernel. An error means that the kernel is dead or dying.
func (it *interpreter) request(b []byte) error {
	it.requestTurn.Lock()
	defer it.requestTurn.Unlock()
	_, err := it.requests.Write(b)
	return err
}

// setCode replaces the contents of the shell's code file.
func (it *interpreter) setCode(code []byte) error {
	if err := it.code.Truncate(0); err != nil {
		return err
	}
	if _, err := it.code.WriteAt(code, 0); err != nil {
		return err
	}
	_, err := it.code.Seek(0, io.SeekStart)
	return err
}

// maxSaved bounds the state that a shell saves, in bytes.
const maxSaved = 8 << 20

// savedCode returns the state that a shell wrote after its run's code.
func (it *interpreter) savedCode(after int) ([]byte, error) {
	return io.ReadAll(io.NewSectionReader(it.code, int64(after), maxSaved))
}
