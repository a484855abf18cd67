package gvisor_test

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
)

// BenchmarkSave saves and resumes a box with a Python that has imported some modules,
// in turn with starts of bare Python. It reports medians and 95th percentiles.
func BenchmarkSave(b *testing.B) {
	d, err := harness.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { d.Close() })
	box := drivertest.Launch(b, d, harness.Spec())
	box.MustSh(b, "setsid "+harness.Python+" -c 'import json, asyncio, ssl, decimal, time\nwhile True: time.sleep(0.05)' >/dev/null 2>&1 </dev/null & sleep 1")
	times := map[string][]time.Duration{}
	var bytes, packed int64
	measure := func(name string, f func() error) {
		began := time.Now()
		if err := f(); err != nil {
			b.Fatal(name, err)
		}
		times[name] = append(times[name], time.Since(began))
	}
	for i := 0; b.Loop(); i++ {
		measure("python", func() error { return exec.Command(harness.Python, "-c", "pass").Run() })
		measure("save", func() error {
			saved, err := driver.Save(b.Context(), box.Box)
			bytes = saved.Bytes
			times["stood"] = append(times["stood"], saved.Stood)
			return err
		})
		restore, wake := "restore", "wake"
		if i%2 == 1 { // every other state is compressed
			restore, wake = "restore-packed", "wake-packed"
			measure("pack", func() (err error) { packed, err = driver.Pack(b.Context(), box.Box); return err })
		}
		began := time.Now()
		measure(restore, func() error { return driver.Resume(b.Context(), box.Box) })
		if err := box.Client.Health(b.Context()); err != nil {
			b.Fatal(err)
		}
		times[wake] = append(times[wake], time.Since(began))
	}
	b.ReportMetric(float64(bytes)/1e6, "MB")
	b.ReportMetric(float64(packed)/1e6, "packed-MB")
	for name, all := range times {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2])/1e6, name+"-p50-ms")
		b.ReportMetric(float64(all[len(all)*95/100])/1e6, name+"-p95-ms")
	}
	b.ReportMetric(0, "ns/op")
}
