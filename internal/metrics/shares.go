package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/glovebox-dev/glovebox/internal/fair"
)

// Shares adds resources that are divided between principals. Each function
// returns the figures of one resource, whose name becomes a label. It may be
// called several times, with different resources. It does nothing on a nil Set.
func (s *Set) Shares(resources ...func() fair.Stats) {
	if s != nil {
		s.registry.MustRegister(shares(resources))
	}
}

type shares []func() fair.Stats

var (
	shareUnitsDesc      = desc("share_units", "Units of a resource that principals share.", "resource")
	shareUsedDesc       = desc("share_used", "Units that principals hold.", "resource")
	shareMostDesc       = desc("share_most", "Units that the principal with the most units holds.", "resource")
	sharePrincipalsDesc = desc("share_principals", "Principals that hold units or wait for them.", "resource")
	shareWaitingDesc    = desc("share_waiting", "Requests that wait for units.", "resource")
	shareWaitedDesc     = desc("share_waited_total", "Requests that had to wait for their units.", "resource")
	shareRefusedDesc    = desc("share_refused_total", "Requests that were refused their units.", "resource")
	shareEvictedDesc    = desc("share_evicted_total", "Holds that ended in favour of other principals.", "resource")
)

// Describe sends nothing, because several collectors may have the same metrics.
func (shares) Describe(chan<- *prometheus.Desc) {}

func (r shares) Collect(ch chan<- prometheus.Metric) {
	for _, stats := range r {
		s := stats()
		name := strings.ReplaceAll(s.Name, " ", "_")
		for _, f := range []struct {
			desc  *prometheus.Desc
			kind  prometheus.ValueType
			value int64
		}{
			{shareUnitsDesc, prometheus.GaugeValue, s.Total},
			{shareUsedDesc, prometheus.GaugeValue, s.Used},
			{shareMostDesc, prometheus.GaugeValue, s.MostHeld},
			{sharePrincipalsDesc, prometheus.GaugeValue, int64(s.Principals)},
			{shareWaitingDesc, prometheus.GaugeValue, int64(s.Waiting)},
			{shareWaitedDesc, prometheus.CounterValue, s.Waited},
			{shareRefusedDesc, prometheus.CounterValue, s.Refused},
			{shareEvictedDesc, prometheus.CounterValue, s.Evicted},
		} {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, float64(f.value), name)
		}
	}
}
