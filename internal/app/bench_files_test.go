package app

import (
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// benchFile is how large the file is that BenchmarkFiles moves.
const benchFile = 1 << 30

// BenchmarkFiles uploads a file of 1 GiB by a signed URL and downloads it again,
// beside cp of the same file on the same disk, in turn.
func BenchmarkFiles(b *testing.B) {
	if runtime.GOOS != "linux" {
		b.Skip("the fake driver needs Linux")
	}
	dir := b.TempDir()
	source := filepath.Join(dir, "source")
	f, err := os.Create(source)
	if err != nil {
		b.Fatal(err)
	}
	block := make([]byte, 1<<20)
	for i := range block {
		block[i] = byte(i * 7)
	}
	for range benchFile / len(block) {
		if _, err := f.Write(block); err != nil {
			b.Fatal(err)
		}
	}
	f.Close()
	server := startSoak(b, dir, freeAddress(b))
	defer server.kill()
	id, signer := makeSoaked(b, server)
	sign := func(method string) string {
		return server.url + "/files/" + id.Handle() + "/f?" + signer.Sign(method, id.Handle(), "f", time.Now().Add(time.Hour))
	}
	var cp, up, down time.Duration
	timed := func(sum *time.Duration, do func() error) {
		b.Helper()
		began := time.Now()
		if err := do(); err != nil {
			b.Fatal(err)
		}
		*sum += time.Since(began)
	}
	for b.Loop() {
		to := filepath.Join(dir, "copy")
		timed(&cp, func() error { return exec.Command("cp", source, to).Run() })
		os.Remove(to)
		timed(&up, func() error {
			f, err := os.Open(source)
			if err != nil {
				return err
			}
			defer f.Close()
			req, err := http.NewRequestWithContext(b.Context(), "PUT", sign("PUT"), f)
			if err != nil {
				return err
			}
			req.ContentLength = benchFile
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusCreated {
				b.Fatalf("status %d", res.StatusCode)
			}
			return nil
		})
		timed(&down, func() error {
			req, err := http.NewRequestWithContext(b.Context(), "GET", sign("GET"), nil)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			out, err := os.Create(to)
			if err != nil {
				return err
			}
			defer out.Close()
			_, err = io.Copy(out, res.Body)
			return err
		})
		os.Remove(to)
	}
	n := float64(b.N)
	b.ReportMetric(cp.Seconds()/n, "s/cp")
	b.ReportMetric(up.Seconds()/n, "s/upload")
	b.ReportMetric(down.Seconds()/n, "s/download")
	b.ReportMetric(float64(cp)/float64(up), "upload/cp")
	b.ReportMetric(float64(cp)/float64(down), "download/cp")
}
