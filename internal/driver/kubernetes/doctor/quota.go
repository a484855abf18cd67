package doctor

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
)

// quota reports for how many more sandboxes like pod the quotas of the namespace have
// room.
func (on *Cluster) quota(ctx context.Context, pod *corev1.Pod) Check {
	c := Check{Name: "quota", OK: true, Detail: "the namespace has none"}
	var list struct{ Items []corev1.ResourceQuota }
	err := on.Object(ctx, "/api/v1/namespaces/"+on.Namespace+"/resourcequotas", &list)
	if apierrors.IsForbidden(err) {
		c.Detail = "the server may not look whether the namespace has one"
		return c
	} else if err != nil {
		return noticed(c.Name, on.Explain(ctx, err))
	}
	need := needsOf(pod)
	room, of := int64(math.MaxInt64), ""
	for _, q := range list.Items {
		if !counts(&q.Spec) {
			continue
		}
		for name, hard := range q.Status.Hard {
			one, ok := need[name]
			if !ok || one.IsZero() {
				continue
			}
			left := hard.DeepCopy()
			left.Sub(q.Status.Used[name])
			n := max(int64(left.AsApproximateFloat64()/one.AsApproximateFloat64()+1e-6), 0) // 0.3 has room for 0.1 three times
			what := fmt.Sprintf("%s has %s of %s left, and a sandbox takes %s", q.Name, left.String(), name, one.String())
			if n < room || n == room && what < of { // the order of a map is no order
				room, of = n, what
			}
		}
	}
	switch {
	case of == "" && len(list.Items) > 0:
		c.Detail = "none limits sandboxes"
	case of == "":
	case room < 1:
		c.OK, c.Detail = false, "there is no room for a sandbox with the default limits: "+of
		c.Fix = "stop other sandboxes, or raise the ResourceQuota of namespace " + on.Namespace
	default:
		c.Detail = fmt.Sprintf("there is room for %d more with the default limits: %s", room, of)
	}
	return c
}

// counts reports whether a quota counts Pods of sandboxes. They have no deadline, and
// limits. A quota for Pods of a priority may count them or not.
func counts(q *corev1.ResourceQuotaSpec) bool {
	other := func(s corev1.ResourceQuotaScope) bool {
		return s != corev1.ResourceQuotaScopeNotTerminating && s != corev1.ResourceQuotaScopeNotBestEffort
	}
	return !slices.ContainsFunc(q.Scopes, other) && q.ScopeSelector == nil
}

// needsOf returns what a Pod takes of quotas, by their names of resources. An init
// container of a sandbox takes what its only other one does, and at another time.
func needsOf(pod *corev1.Pod) corev1.ResourceList {
	one := *resource.NewQuantity(1, resource.DecimalSI)
	need := corev1.ResourceList{corev1.ResourcePods: one, "count/pods": one}
	add := func(name corev1.ResourceName, q resource.Quantity) {
		sum := need[name].DeepCopy()
		sum.Add(q)
		need[name] = sum
	}
	addAll := func(limits, requests corev1.ResourceList) {
		for name, q := range limits {
			add("limits."+name, q)
		}
		for name, q := range requests {
			add("requests."+name, q)
			if !strings.Contains(string(name), "/") {
				add(name, q) // a short form of the same
			}
		}
	}
	for _, c := range pod.Spec.Containers {
		addAll(c.Resources.Limits, c.Resources.Requests)
	}
	addAll(pod.Spec.Overhead, pod.Spec.Overhead) // of the runtime class
	return need
}
