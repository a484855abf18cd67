package config

import (
	"fmt"
	"time"
)

// minHibernateAfter is the shortest idle time after which sandboxes are saved: servers
// look once a minute.
const minHibernateAfter = time.Minute

// checkHibernation checks the settings for hibernated sandboxes.
func (s *Sandbox) checkHibernation() error {
	after, keep := time.Duration(s.HibernateAfter), time.Duration(s.HibernateKeep)
	switch {
	case after < 0 || after > 0 && after < minHibernateAfter:
		return invalid("sandbox.hibernate_after", fmt.Sprintf("%v is not a time", after), "write it like 5m, at least %v, or 0 for never", minHibernateAfter)
	case after > 0 && s.Hibernate != HibernateDisk:
		return invalid("sandbox.hibernate_after", "works only with sandboxes that hibernate on disk", "set sandbox.hibernate to "+HibernateDisk)
	case after > 0 && after >= time.Duration(s.Default.Idle):
		return invalid("sandbox.hibernate_after", fmt.Sprintf("%v is not less than sandbox.default.idle, which is %v", after, time.Duration(s.Default.Idle)),
			"lower it, or raise the idle time after which sandboxes stop")
	case keep < 0:
		return invalid("sandbox.hibernate_keep", fmt.Sprintf("%v is not a time", keep), "write it like 72h, or 0 for the lifetime of the sandbox")
	case s.HibernateSpace < 0:
		return invalid("sandbox.hibernate_space", "is negative", "write it like 20GiB, or 0 for no limit")
	}
	return nil
}
