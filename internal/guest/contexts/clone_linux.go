package contexts

import (
	"sync"
	"time"
)

// tellTime bounds how long interpreters may take to take the message that they were
// cloned. One that reads nothing gets it when it reads again.
const tellTime = time.Second

// Cloned tells all interpreters that a snapshot gave the box its state. What they are
// asked to run afterwards runs after they have reseeded.
func (s *Server) Cloned() {
	var told sync.WaitGroup
	for _, c := range s.registry.list() {
		c.mu.Lock()
		it := c.live
		c.mu.Unlock()
		if message := c.program.Cloned(); it != nil && message != nil {
			told.Go(func() { _ = it.request(message) }) // it fails if the interpreter is dying
		}
	}
	all := make(chan struct{})
	go func() {
		told.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(tellTime):
	}
}
