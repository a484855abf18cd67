// Package claim has Pods mount workspaces that are in a PersistentVolumeClaim.
//
// Only package kubernetes imports it. It has no state. Servers may share a claim: the
// workspaces of a state directory are below workspaces/ID, where ID is that of the
// state directory. A box has the directories of its own workspaces alone. The server
// of workspaces has the whole claim, makes the directories and deletes them; see
// package container. It runs no code of users.
package claim

import (
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

const volume = "workspaces"

// directory returns where a claim has the workspaces of a state directory.
func directory(state string) string { return path.Join("workspaces", state) }

// Mount has the Pod of a plan mount what the plan does of the claim. Kubernetes gives
// the claim to the group of sandboxes' user, if the kind of storage permits that.
func Mount(pod *corev1.Pod, p *container.Plan, claim string) {
	if len(p.Mounts)+len(p.Volumes) == 0 {
		return
	}
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: volume, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
	}})
	group, policy := int64(sandbox.UserUID), corev1.FSGroupChangeOnRootMismatch
	pod.Spec.SecurityContext.FSGroup, pod.Spec.SecurityContext.FSGroupChangePolicy = &group, &policy

	box, own := &pod.Spec.Containers[0], directory(p.Labels[container.LabelState])
	for _, m := range p.Mounts {
		box.VolumeMounts = append(box.VolumeMounts, corev1.VolumeMount{
			Name: volume, MountPath: m.Path, SubPath: path.Join(own, path.Base(m.Dir)), ReadOnly: m.ReadOnly,
		})
	}
	for at := range p.Volumes {
		// The kubelet would make a sub-path as root, where the server may not write.
		box.VolumeMounts = append(box.VolumeMounts, corev1.VolumeMount{Name: volume, MountPath: at})
		box.Args = slices.Clone(box.Args)
		box.Args[slices.Index(box.Args, at)] = path.Join(at, own)
	}
}
