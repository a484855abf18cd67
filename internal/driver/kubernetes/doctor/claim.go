package doctor

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// claim reports whether the claim of workspaces is there, and can be mounted by Pods of
// several nodes.
func (on *Cluster) claim(ctx context.Context) Check {
	c := Check{Name: "workspace claim", OK: true}
	var claim corev1.PersistentVolumeClaim
	err := on.Object(ctx, "/api/v1/namespaces/"+on.Namespace+"/persistentvolumeclaims/"+on.Claim, &claim)
	switch {
	case apierrors.IsNotFound(err):
		return Check{
			Name: c.Name, Fatal: true, Detail: fmt.Sprintf("the namespace %s has no claim %s", on.Namespace, on.Claim),
			Fix:      "make it with a storage class that has volumes of the access mode ReadWriteMany, or correct kubernetes.workspace_claim",
			Manifest: on.manifest("claim", "CLAIM", fmt.Sprintf("%q", on.Claim)),
		}
	case apierrors.IsForbidden(err):
		c.Detail = "the server may not look whether " + on.Claim + " is there"
		return c
	case err != nil:
		return noticed(c.Name, on.Explain(ctx, err))
	}
	c.Detail = on.Claim
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		c.Detail += ", of the storage class " + *class
	}
	if !slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteMany) {
		c.OK = false
		c.Detail += fmt.Sprintf(": its access modes are %v, so only Pods of one node mount it at a time", claim.Spec.AccessModes)
		c.Fix = "make a claim of the access mode ReadWriteMany, unless the cluster has one node for sandboxes"
		return c
	}
	switch claim.Status.Phase {
	case corev1.ClaimBound:
		size := claim.Status.Capacity[corev1.ResourceStorage]
		c.Detail += ", with a volume of " + size.String()
	case corev1.ClaimLost:
		c.OK, c.Fatal = false, true
		c.Detail += ", which has lost its volume"
		c.Fix = "see kubectl describe persistentvolumeclaim " + on.Claim + ", and restore the volume"
	default:
		c.Detail += ", which has no volume yet. That is right before the first sandbox if its storage class waits for a Pod; see kubectl describe persistentvolumeclaim " + on.Claim
	}
	return c
}
