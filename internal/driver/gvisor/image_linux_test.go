package gvisor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/driver/gvisor"
	"github.com/glovebox-dev/glovebox/internal/image"
	"github.com/glovebox-dev/glovebox/internal/image/imagetest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const imageCache = "../../../.cache/images"

// openImages opens a driver over dir that keeps images.
func openImages(t testing.TB, dir string) *gvisor.Driver {
	t.Helper()
	images, err := image.New(image.Options{Dir: filepath.Join(dir, "images")})
	if err != nil {
		t.Fatal(err)
	}
	d, err := gvisor.New(gvisor.Options{
		StateDir: dir, Program: os.Getenv(programEnv), Guest: os.Getenv(guestEnv), Images: images,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// launchImage makes a box of an image, which is fetched if it is not here.
func launchImage(t testing.TB, d *gvisor.Driver, ref string) *drivertest.Box {
	t.Helper()
	if _, err := d.PullImage(t.Context(), driver.ImagePull{Ref: ref, Missing: true, Anywhere: true}); err != nil {
		t.Fatal(err)
	}
	spec := harness.Spec()
	spec.Image = ref
	b, err := d.Create(t.Context(), spec)
	if err != nil {
		t.Fatalf("%v (hint: %s)", err, sandbox.HintOf(err))
	}
	t.Cleanup(func() {
		if err := b.Destroy(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	box := drivertest.NewBox(t, b)
	box.Spec = spec
	return box
}

// TestImageFromScratch runs an image that has one static program and nothing
// else, fetched from a registry when the box is made.
func TestImageFromScratch(t *testing.T) {
	reg := imagetest.New(t)
	ref := reg.Push(t, "scratch", imagetest.Image(t, imagetest.Config{}, imagetest.Busybox(t)))
	dir := t.TempDir()
	d := openImages(t, dir)
	box := launchImage(t, d, ref)
	for script, want := range map[string]string{
		"id -un; id -u; pwd":                         "user\n1000\n/data\n",
		"cat /etc/hostname":                          "sandbox\n",
		"echo a > /tmp/a && cat /tmp/a":              "a\n",
		"echo b > /data/b && stat -c %u b":           "1000\n",
		"stat -c '%u %a' /bin/busybox /tmp":          "0 755\n0 1777\n",
		"echo x > /bin/x || echo refused":            "refused\n",
		"ls /.glovebox; test -w /.glovebox; echo $?": "glovebox-guest\n1\n",
	} {
		if got := box.MustSh(t, script+" 2>/dev/null"); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	if got := box.MustRoot(t, "rm /bin/ls && echo new > /etc/new && cat /etc/new"); got != "new\n" {
		t.Errorf("root writes to the image's layer: %q", got)
	}
	// What one box writes, the next does not see.
	if got := launchImage(t, d, ref).MustSh(t, "ls /bin/ls /etc/new 2>/dev/null; true"); got != "/bin/ls\n" {
		t.Errorf("the second box has %q", got)
	}
	receipt, err := box.Box.Receipt(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if bad := receipt.Unenforced(); len(bad) > 0 {
		t.Errorf("not enforced: %v", bad)
	}
}

// TestImageConfig shows that what an image says of its programs holds.
func TestImageConfig(t *testing.T) {
	reg := imagetest.New(t)
	d := openImages(t, t.TempDir())
	busybox := imagetest.Busybox(t)
	app := imagetest.Layer(t,
		imagetest.File{Name: "etc/passwd", Content: "root:x:0:0::/:/bin/sh\napp:x:70:71::/app:/bin/sh\n"},
		imagetest.File{Name: "etc/group", Content: "root:x:0:\nstaff:x:72:app\n"},
		imagetest.File{Name: "app/", UID: 70}, imagetest.File{Name: "app/secret", Content: "s", Mode: 0o600, UID: 70})
	show := "id -u; id -g; id -G; pwd; echo $HOME; echo $A; echo $PATH; cat /app/secret"
	for name, c := range map[string]struct {
		config imagetest.Config
		want   string
	}{
		"All": {imagetest.Config{User: "app", WorkingDir: "/app", Env: []string{"A=b c", "PATH=/x:/bin"}},
			"70\n71\n71 72\n/app\n/app\nb c\n/x:/bin:/data/.glovebox/bin\ns"},
		"Group":  {imagetest.Config{User: "app:staff"}, "70\n72\n72\n/data\n/app\n\n" + path + "\ns"},
		"Number": {imagetest.Config{User: "81:82"}, "81\n82\n82\n/data\n/\n\n" + path + "\n"},
		"Root":   {imagetest.Config{User: "root", WorkingDir: "/none"}, "1000\n1000\n1000\n/data\n/home/user\n\n" + path + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			box := launchImage(t, d, reg.Push(t, strings.ToLower(name), imagetest.Image(t, c.config, busybox, app)))
			r, err := box.Run(t.Context(), drivertest.Sh(show+" 2>/dev/null"))
			if err != nil || r.Stdout != c.want {
				t.Errorf("%q, want %q (%v)", r.Stdout, c.want, err)
			}
			if got := box.MustRoot(t, "id -u"); got != "0\n" {
				t.Errorf("root is %q", got)
			}
			if got := box.MustSh(t, "touch /data/x && echo ok"); got != "ok\n" {
				t.Errorf("/data: %q", got)
			}
		})
	}
	box := launchImage(t, d, reg.Push(t, "nobody", imagetest.Image(t, imagetest.Config{User: "ghost"}, busybox)))
	if _, err := box.Run(t.Context(), drivertest.Sh("id")); !errors.Is(err, sandbox.Invalid) || !strings.Contains(err.Error(), `"ghost"`) {
		t.Errorf("a user who is not there: %v", err)
	}
}

// path is what such programs have: last, where installed packages put theirs.
const path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/data/.glovebox/bin"

// TestImageRefused shows that an image that is not to be had leaves nothing.
func TestImageRefused(t *testing.T) {
	reg := imagetest.New(t)
	dir := t.TempDir()
	d := openImages(t, dir)
	for ref, kind := range map[string]sandbox.Kind{
		reg.Host + "/none":                  sandbox.Unavailable, // at this machine's address
		"Bad Name":                          sandbox.Invalid,
		"sha256:" + strings.Repeat("0", 64): sandbox.NotFound,
		"/etc/passwd":                       sandbox.Invalid,
		"../images":                         sandbox.Invalid,
	} {
		spec := harness.Spec()
		spec.Image = ref
		if b, err := d.Create(t.Context(), spec); !errors.Is(err, kind) {
			t.Errorf("%s: %v, %v; want one of kind %s", ref, b, err, kind)
		}
	}
	if left := leftovers(t, dir); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestImageDebian runs the interpreter of a Debian, and shows that boxes share
// the image's pages.
func TestImageDebian(t *testing.T) {
	layer := imagetest.Debian(t, imageCache)
	dir := t.TempDir()
	d := openImages(t, dir)
	archive := filepath.Join(dir, "debian.tar")
	imagetest.Save(t, archive, "debian:test", imagetest.Image(t, imagetest.Config{}, layer))
	if _, err := d.LoadImages(t.Context(), driver.ImageArchive{Path: archive}, nil); err != nil {
		t.Fatal(err)
	}
	box := launchImage(t, d, "debian:test")
	if got := box.MustSh(t, "python3 -c 'import os, sys; print(6*7, os.getuid(), sys.prefix)'; . /etc/os-release; echo $ID"); got != "42 1000 /usr\ndebian\n" {
		t.Errorf("python: %q", got)
	}
	// Owners and modes are the image's, whoever unpacked it.
	if got := box.MustSh(t, "stat -c '%U:%G %a' /etc/shadow /usr/bin/passwd /var/mail"); got != "root:shadow 640\nroot:root 4755\nroot:mail 2775\n" {
		t.Errorf("owners and modes: %q", got)
	}
	// dpkg knows what every file of Debian's must be.
	if got := box.MustRoot(t, "dpkg --verify 2>&1 | grep -v '/usr/share/\\(man\\|doc\\|locale\\)' || true"); got != "" {
		t.Errorf("files that are not Debian's:\n%s", got)
	}

	const boxes = 20
	var refs []string
	for range boxes {
		b := launchImage(t, d, "debian:test")
		b.MustSh(t, "python3 -c 'import re, os'")
		refs = append(refs, b.Box.Ref())
	}
	files, err := filepath.Glob(filepath.Join(dir, "images", "*", "*.erofs"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files of images: %q, %v", files, err)
	}
	var resident, proportional int64
	for _, ref := range refs {
		for _, pid := range hostProcesses(t, dir, ref) {
			r, p := mapped(t, pid, files[0])
			resident, proportional = resident+r, proportional+p
		}
	}
	t.Logf("%d boxes: %d KiB of the image are resident in their kernels, %d KiB in proportion", boxes, resident, proportional)
	if resident == 0 || proportional > resident/6 {
		t.Errorf("the image's pages are not shared: %d KiB resident, %d KiB in proportion", resident, proportional)
	}
}

// mapped returns how much of a file a process has in memory, in KiB, and how much of
// that is its own share. In the mount in which a kernel has it the file has no name.
func mapped(t testing.TB, pid int, path string) (resident, proportional int64) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	device := fmt.Sprintf("%02x:%02x", unix.Major(st.Dev), unix.Minor(st.Dev))
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		return 0, 0 // it has ended
	}
	ours := false
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		switch {
		case len(f) >= 6 && strings.Contains(f[0], "-"):
			ours = f[3] == device && f[4] == strconv.FormatUint(st.Ino, 10)
		case ours && len(f) > 1 && f[0] == "Rss:":
			n, _ := strconv.ParseInt(f[1], 10, 64)
			resident += n
		case ours && len(f) > 1 && f[0] == "Pss:":
			n, _ := strconv.ParseInt(f[1], 10, 64)
			proportional += n
		}
	}
	return resident, proportional
}
