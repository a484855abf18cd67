package contexts

import (
	"maps"
	"slices"
	"strings"
)

// A place is where an interpreter that was started ahead has to be for its first
// run: the directory, and the differences of its environment.
type place struct {
	dir   string
	set   map[string]string
	unset []string
}

// relocate lets an interpreter without a run move to the context's directory with
// its first run. It returns false if the interpreter cannot; the start of another
// one then reports the reason.
func (c *context) relocate(it *interpreter) bool {
	if !c.program.Moves() {
		return false
	}
	dir, err := c.server.directory(c)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live != it {
		return false
	}
	c.dir, it.dir, c.moved = dir, dir, true
	return true
}

// takePlace returns the place of an interpreter that has to move with the run under
// way, or nil. The caller tells the interpreter: no later run gets the place. A run
// that is withdrawn leaves it to the next one.
func (it *interpreter) takePlace() *place {
	c := it.context
	c.mu.Lock()
	if !c.moved || c.live != it {
		c.mu.Unlock()
		return nil
	}
	c.moved = false
	p, env := &place{dir: it.dir, set: map[string]string{}}, c.env
	c.mu.Unlock()
	variables := func(env map[string]string) map[string]string {
		all := map[string]string{}
		for _, v := range c.server.processes.Variables(c.account, env) {
			name, value, _ := strings.Cut(v, "=")
			all[name] = value
		}
		return all
	}
	before, now := variables(it.env), variables(env)
	for name, value := range now {
		if old, ok := before[name]; !ok || old != value {
			p.set[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := now[name]; !ok {
			p.unset = append(p.unset, name)
		}
	}
	return p
}
