package kubernetes

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/claim"
	"github.com/glovebox-dev/glovebox/internal/driver/kubernetes/podstate"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// Names of what a Pod of a box consists of.
const (
	guestContainer = podstate.GuestContainer
	boxContainer   = podstate.BoxContainer
	guestVolume    = "guest"
)

// Labels of a Pod, besides those of package container. They are stored data.
const (
	labelManager = "app.kubernetes.io/managed-by"
	manager      = "glovebox"
	// LabelNetwork has the value "none" on Pods that need no traffic in either
	// direction, which are all of them: the network of a box is an exec of its Pod.
	// NetworkPolicies select Pods by it.
	LabelNetwork = "glovebox.network"
)

const (
	// guestBytes bounds the volume with the guest's program.
	guestBytes = 64 << 20
	// ephemeralBytes is what a box may use of its node's disk: the guest's program, and
	// what the guest says of errors.
	ephemeralBytes = 128 << 20
	// The resources that the scheduler reserves for a box. Sandboxes are idle most of
	// the time, so it is less than their limits.
	requestMilliCPU = 50
	requestBytes    = 64 << 20
	// lostNode is how long a Pod stays on a node that does not answer.
	lostNode = 60 * time.Second
	// endTime is how long the processes of a Pod may take to end by themselves.
	endTime = time.Second
)

// terminationPath is where the box has the file of the kubelet for a last message. It
// is on the node's disk, unbounded, and every user may write it. So it is where no
// program reaches it: see the guest's command install-guest.
const terminationPath = container.GuestDir + "/closed/log"

// podName returns the name of the Pod of a box.
func podName(ref string) string { return sandbox.HostID(ref) }

// podOf translates a plan into a Pod.
func podOf(opts *Options, p *container.Plan, image string, attached bool) *corev1.Pod {
	labels := map[string]string{labelManager: manager, LabelNetwork: string(sandbox.NetworkNone)}
	annotations := map[string]string{}
	for name, value := range p.Labels {
		switch name {
		case container.LabelRecord, container.LabelOwner: // these do not have the form of a label's value
			annotations[name] = value
		default:
			labels[name] = value
		}
	}
	confined := &corev1.SecurityContext{
		AllowPrivilegeEscalation: new(bool),
		Privileged:               new(bool),
		ReadOnlyRootFilesystem:   pointer(true),
		RunAsNonRoot:             pointer(true),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	resources := corev1.ResourceRequirements{
		Limits: corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewMilliQuantity(max(p.NanoCPUs/1e6, 1), resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(p.MemoryBytes, resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(ephemeralBytes, resource.BinarySI),
		},
		Requests: corev1.ResourceList{
			corev1.ResourceCPU:              *resource.NewMilliQuantity(min(requestMilliCPU, max(p.NanoCPUs/1e6, 1)), resource.DecimalSI),
			corev1.ResourceMemory:           *resource.NewQuantity(min(requestBytes, p.MemoryBytes), resource.BinarySI),
			corev1.ResourceEphemeralStorage: *resource.NewQuantity(guestBytes, resource.BinarySI),
		},
	}
	volumes, mounts := volumesOf(p)
	install := container.InstallArgs(container.GuestDir) // of the image's own program
	installs := []corev1.VolumeMount{{Name: guestVolume, MountPath: container.GuestDir}}
	for i, s := range p.Scratch {
		at := fmt.Sprintf("/.scratch/%d", i)
		install = append(install, fmt.Sprintf("%o:%s", s.Mode, at))
		installs = append(installs, corev1.VolumeMount{Name: scratchVolume(i), MountPath: at})
	}
	lost := int64(lostNode / time.Second)
	pod := &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{Name: podName(p.Name), Labels: labels, Annotations: annotations},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: pointer(int64(endTime / time.Second)),
			AutomountServiceAccountToken:  new(bool),
			EnableServiceLinks:            new(bool),
			Hostname:                      p.Hostname,
			SecurityContext: &corev1.PodSecurityContext{
				RunAsNonRoot:   pointer(true),
				RunAsUser:      pointer(int64(sandbox.UserUID)),
				RunAsGroup:     pointer(int64(sandbox.UserUID)),
				SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			},
			Tolerations: []corev1.Toleration{
				{Key: corev1.TaintNodeNotReady, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &lost},
				{Key: corev1.TaintNodeUnreachable, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &lost},
			},
			InitContainers: []corev1.Container{{
				Name:            guestContainer,
				Image:           opts.GuestImage,
				ImagePullPolicy: corev1.PullIfNotPresent,
				Args:            install,
				// Its error is in the Pod's status then, and so in the error of Create.
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
				SecurityContext:          confined,
				Resources:                resources,
				VolumeMounts:             installs,
			}},
			Containers: []corev1.Container{{
				Name:                     boxContainer,
				Image:                    image,
				ImagePullPolicy:          corev1.PullIfNotPresent,
				Command:                  []string{container.GuestPath},
				Args:                     p.Args,
				WorkingDir:               "/",
				Stdin:                    attached,
				StdinOnce:                attached,
				SecurityContext:          confined,
				Resources:                resources,
				VolumeMounts:             mounts,
				TerminationMessagePath:   terminationPath,
				TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
			}},
			Volumes: volumes,
		},
	}
	if opts.RuntimeClass != "" && p.UserCode {
		pod.Spec.RuntimeClassName = &opts.RuntimeClass
	}
	for _, name := range opts.PullSecrets {
		pod.Spec.ImagePullSecrets = append(pod.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: name})
	}
	claim.Mount(pod, p, opts.WorkspaceClaim)
	return pod
}

// volumesOf returns the volumes of a plan, and where the box has them. Scratch
// volumes are in memory, where the kernel bounds their size. The kubelet looks at the
// size of a volume on a disk only now and then. The directory of a volume is root's, so
// the box has one in it that the init container made.
func volumesOf(p *container.Plan) ([]corev1.Volume, []corev1.VolumeMount) {
	empty := func(name string, medium corev1.StorageMedium, bytes int64) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{
			Medium: medium, SizeLimit: resource.NewQuantity(bytes, resource.BinarySI),
		}}}
	}
	volumes := []corev1.Volume{empty(guestVolume, corev1.StorageMediumDefault, guestBytes)}
	mounts := []corev1.VolumeMount{{Name: guestVolume, MountPath: container.GuestDir, ReadOnly: true}}
	for _, target := range slices.Sorted(maps.Keys(p.Settings)) {
		mounts = append(mounts, corev1.VolumeMount{Name: guestVolume, MountPath: target, SubPath: path.Base(p.Settings[target]), ReadOnly: true})
	}
	for i, s := range p.Scratch {
		volumes = append(volumes, empty(scratchVolume(i), corev1.StorageMediumMemory, s.Bytes))
		mounts = append(mounts, corev1.VolumeMount{Name: scratchVolume(i), MountPath: s.Path, SubPath: "own"})
	}
	return volumes, mounts
}

func scratchVolume(i int) string { return fmt.Sprintf("scratch-%d", i) }

func pointer[T any](v T) *T { return &v }
