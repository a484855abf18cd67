package docker_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/glovebox-dev/glovebox/internal/driver"
	"github.com/glovebox-dev/glovebox/internal/driver/docker"
	"github.com/glovebox-dev/glovebox/internal/driver/drivertest"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// changeLayer changes files of the image in ways that a layer has.
// The variable REPLACE depends on the engine.
const changeLayer = `set -e
rm -r /usr/share/doc; echo changed >> /etc/issue; chmod 600 /etc/debian_version
rm -r /usr/share/info 2>/dev/null || true; echo f > /usr/share/info
$REPLACE
mkdir -p /opt/tool/bin; echo tool > /opt/tool/bin/tool; chmod 755 /opt/tool/bin/tool; chown -R user /opt/tool; mv /usr/bin/passwd /opt/passwd
mv /etc/profile /etc/moved; echo wh > /opt/.wh.tool; ln -s tool /opt/link; echo mine > /data/mine; echo tmp > /tmp/tmp`

const listLayer = `for f in /usr/share/doc /etc/issue /etc/debian_version /usr/share/info /etc/issue.net /etc/issue.net/d /opt/tool /opt/tool/bin/tool \
	/etc/profile /etc/moved /opt/.wh.tool /opt/link /opt/passwd /usr/bin/passwd /data/mine /tmp/tmp; do
	stat -c '%n %u:%g %a %F %N' $f 2>/dev/null || echo "$f: none"
	[ ! -f $f ] || md5sum < $f
done`

// TestSnapshotOfLayer takes snapshots of boxes that can write everywhere, because nothing
// bounds their disk.
func TestSnapshotOfLayer(t *testing.T) {
	for engine, variable := range map[string]string{docker.Docker: dockerEnv, docker.Podman: podmanEnv} {
		t.Run(engine, func(t *testing.T) {
			need(t, engine, variable)
			h := harness(engine, variable)
			d, err := h.Open(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { d.Close() })
			unbounded := func() *driver.Spec {
				spec := h.Spec()
				spec.AllowUnenforced = append(spec.AllowUnenforced, sandbox.ControlDisk)
				return spec
			}
			b := drivertest.Launch(t, d, unbounded())
			replace := "rm /etc/issue.net; mkdir /etc/issue.net; echo d > /etc/issue.net/d"
			if engine == docker.Podman {
				replace = "rm /etc/issue.net" // Podman 4 cannot list the changes after that
			}
			b.MustRoot(t, strings.Replace(changeLayer, "$REPLACE", replace, 1))
			want := b.MustRoot(t, listLayer)
			if !strings.Contains(want, "/usr/share/doc: none") || !strings.Contains(want, "/usr/bin/passwd: none") {
				t.Fatalf("the list is not one:\n%s", want)
			}
			id := sandbox.NewID()
			if _, err := driver.TakeDiskSnapshot(t.Context(), b.Box, id); err != nil {
				t.Fatalf("%v (hint: %s)", err, sandbox.HintOf(err))
			}
			k, err := driver.Snapshots(d)
			if err != nil {
				t.Fatal(err)
			}
			hidden(t, d, variable, id)
			clone, err := k.CreateFrom(t.Context(), unbounded(), id)
			if err != nil {
				t.Fatalf("%v (hint: %s)", err, sandbox.HintOf(err))
			}
			// Boxes refuse set-id bits.
			want = strings.Replace(want, "/opt/passwd 0:0 4755", "/opt/passwd 0:0 755", 1)
			if d := cmp.Diff(want, drivertest.NewBox(t, clone).MustRoot(t, listLayer)); d != "" {
				t.Errorf("files of a clone, -want +got:\n%s", d)
			}
			if err := clone.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := k.CreateFrom(t.Context(), h.Spec(), id); sandbox.KindOf(err) != sandbox.Unavailable || sandbox.HintOf(err) == "" {
				t.Errorf("a box that cannot write everywhere: %v, want unavailable with a hint", err)
			}
			if err := k.RemoveSnapshot(t.Context(), id); err != nil {
				t.Error(err)
			}
			if refs, err := d.List(t.Context()); err != nil || !slices.Equal(refs, []string{b.Ref()}) {
				t.Errorf("List: %q, %v; want only %q", refs, err, b.Ref())
			}
		})
	}
}

// hidden checks that no sandbox can have the image of a snapshot, which has files of a
// user.
func hidden(t *testing.T, d driver.Driver, variable, id string) {
	t.Helper()
	keeper, err := driver.Images(d)
	if err != nil {
		t.Fatal(err)
	}
	name := "localhost/glovebox-snapshot:" + id
	c := (&finder{host: os.Getenv(variable)}).client(t)
	defer c.Close()
	in, err := c.ImageInspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{name, in.ID} {
		if _, err := keeper.Image(t.Context(), ref); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("Image of %s: %v, want not found", ref, err)
		}
		spec := harness("", variable).Spec()
		spec.Image = ref
		if b, err := d.Create(t.Context(), spec); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("Create of %s: %v, want not found", ref, err)
			if err == nil {
				b.Destroy(t.Context())
			}
		}
		if _, err := keeper.RemoveImage(t.Context(), ref); sandbox.KindOf(err) != sandbox.NotFound {
			t.Errorf("RemoveImage of %s: %v, want not found", ref, err)
		}
	}
	images, err := keeper.Images(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		if i.ID == in.ID {
			t.Errorf("Images lists the image of a snapshot: %+v", i)
		}
	}
}
