package gvisor_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
)

// imagesEnv names the directory of the images that boxes of imageHarness are of:
// one for all, though each test has a state directory of its own, so that the
// image is unpacked once.
const imagesEnv = "GLOVEBOX_TEST_IMAGES"

// testImage is what those boxes are of.
const testImage = "debian:test"

// imageHarness is the driver with boxes of an OCI image.
var imageHarness = drivertest.Harness{
	Name: "gvisor-image",
	Open: func(dir string) (driver.Driver, error) {
		images, err := image.New(image.Options{Dir: os.Getenv(imagesEnv)})
		if err != nil {
			return nil, err
		}
		return gvisor.New(gvisor.Options{StateDir: dir, Program: os.Getenv(programEnv), Guest: os.Getenv(guestEnv), Images: images})
	},
	Spec: func() *driver.Spec {
		spec := harness.Spec()
		spec.Image = testImage
		return spec
	},
	Leftovers: leftovers,
	Processes: hostProcesses,
	Makers:    orphanedSupervisors,
	Python:    "/usr/bin/python3",
}

// keepImage makes an image of one layer what boxes of imageHarness are of.
func keepImage(t *testing.T, layer []byte) {
	t.Helper()
	dir := t.TempDir()
	t.Setenv(imagesEnv, filepath.Join(dir, "images"))
	images, err := image.New(image.Options{Dir: os.Getenv(imagesEnv)})
	if err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, "image.tar")
	imagetest.Save(t, archive, testImage, imagetest.Image(t, imagetest.Config{}, layer))
	if _, err := images.Load(t.Context(), archive, image.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestImageDriver is the suite on boxes of an image: all of it for root, who has
// time for it, and for an ordinary user what there is to an image.
func TestImageDriver(t *testing.T) {
	if testing.Short() {
		t.Skip("the suite runs on boxes of the image host")
	}
	keepImage(t, imagetest.Debian(t, imageCache))
	h := imageHarness
	if os.Geteuid() != 0 {
		// The rest does not depend on the root file system, and is shown on the
		// image host.
		h.Groups = []string{"Driver", "Process", "Name", "Refuse", "Receipt", "Workspace", "Save", "Snapshot", "Seal"}
	}
	drivertest.Run(t, h)
}
