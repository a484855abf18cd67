package kubernetes

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/glovebox-dev/glovebox/internal/driver/container"
	"github.com/glovebox-dev/glovebox/internal/sandbox"
)

// callTime bounds a call to the API server, except watches and streams.
const callTime = 30 * time.Second

// A connection is the driver's access to its cluster. Its methods are safe for
// concurrent use.
type connection struct {
	opts *Options

	mu     sync.Mutex
	api    *api // nil until the first use; guarded by mu
	closed bool // guarded by mu
}

// open returns the cluster. It reads the configuration at the first call, and makes
// no call to the cluster.
func (c *connection) open() (*api, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, sandbox.Errorf(sandbox.Conflict, "driver is closed")
	}
	if c.api != nil {
		return c.api, nil
	}
	a, err := connect(c.opts)
	if err != nil {
		return nil, err
	}
	c.api = a
	return a, nil
}

// close makes every later open fail.
func (c *connection) close() {
	c.mu.Lock()
	a := c.api
	c.api, c.closed = nil, true
	c.mu.Unlock()
	if a != nil {
		a.close()
	}
}

// An api makes calls to the API server, in one namespace.
type api struct {
	config    *rest.Config
	http      *http.Client
	rest      *rest.RESTClient
	namespace string
	watch     *podWatch
	creating  chan struct{} // has an element for each Pod that is being created
}

// codecs returns the codecs of the few types that the driver uses. Kubernetes' typed
// client would bring all types of all its APIs.
func codecs() (runtime.ParameterCodec, runtime.NegotiatedSerializer, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, nil, err
	}
	return runtime.NewParameterCodec(scheme), serializer.NewCodecFactory(scheme).WithoutConversion(), nil
}

// silence keeps Kubernetes' client from writing to standard error. Its calls return
// their errors.
var silence = sync.OnceFunc(func() { klog.SetSlogLogger(slog.New(slog.DiscardHandler)) })

// connect returns the cluster of a configuration.
func connect(opts *Options) (*api, error) {
	const hint = "set kubernetes.kubeconfig and kubernetes.context, or run the server in the cluster with a ServiceAccount"
	silence()
	config, namespace, err := load(opts)
	if err != nil {
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "find the cluster: %w", err), hint)
	}
	_, negotiated, err := codecs()
	if err != nil {
		return nil, sandbox.Errorf(sandbox.Internal, "%w", err)
	}
	config.APIPath = "/api"
	config.GroupVersion = &schema.GroupVersion{Version: "v1"}
	config.NegotiatedSerializer = negotiated
	config.QPS = -1 // the API server has its own fairness
	config.UserAgent = "glovebox"
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "use the configuration of the cluster: %w", err), hint)
	}
	r, err := rest.RESTClientForConfigAndClient(config, client)
	if err != nil {
		return nil, container.Unavailable(sandbox.Errorf(sandbox.Unavailable, "use the configuration of the cluster: %w", err), hint)
	}
	a := &api{config: config, http: client, rest: r, namespace: namespace, creating: make(chan struct{}, createAtOnce)}
	a.watch = newPodWatch(a)
	return a, nil
}

// load reads a configuration. Without a kubeconfig, it is that of the Pod in which
// the server runs, if it runs in one.
func load(opts *Options) (*rest.Config, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = opts.Kubeconfig
	found := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: opts.Context})
	config, err := found.ClientConfig()
	if err != nil {
		return nil, "", err
	}
	namespace := opts.Namespace
	if namespace == "" {
		if namespace, _, err = found.Namespace(); err != nil {
			return nil, "", err
		}
	}
	return config, namespace, nil
}

// close ends the watch, and closes the connections to the API server. It unwraps the
// client's transport, because http.Client does not look into wrappers.
func (a *api) close() {
	a.watch.close()
	utilnet.CloseIdleConnectionsFor(a.http.Transport)
}

func (a *api) pods(verb string) *rest.Request {
	return a.rest.Verb(verb).Namespace(a.namespace).Resource("pods")
}

// createAtOnce is how many calls create a Pod at a time: thousands would exceed callTime.
const createAtOnce = 32

// create creates a Pod. With dry, the API server only checks it.
func (a *api) create(ctx context.Context, pod *corev1.Pod, dry bool) (*corev1.Pod, error) {
	select {
	case a.creating <- struct{}{}:
		defer func() { <-a.creating }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	request := a.pods(http.MethodPost).Body(pod)
	if dry {
		request = request.Param("dryRun", metav1.DryRunAll)
	}
	var made corev1.Pod
	err := request.Do(ctx).Into(&made)
	return &made, err
}

// pod returns a Pod.
func (a *api) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var pod corev1.Pod
	err := a.pods(http.MethodGet).Name(name).Do(ctx).Into(&pod)
	return &pod, err
}

// listSize is the number of Pods in one answer of the API server.
const listSize = 500

// list calls visit for each Pod with matching labels. Few Pods are in memory at once.
func (a *api) list(ctx context.Context, selector string, visit func(*corev1.Pod)) error {
	for next := ""; ; {
		call, cancel := context.WithTimeout(ctx, callTime)
		var some corev1.PodList
		request := a.pods(http.MethodGet).Param("labelSelector", selector).Param("limit", fmt.Sprint(listSize))
		if next != "" {
			request = request.Param("continue", next)
		}
		err := request.Do(call).Into(&some)
		cancel()
		if err != nil {
			return err
		}
		for i := range some.Items {
			visit(&some.Items[i])
		}
		if next = some.Continue; next == "" {
			return nil
		}
	}
}

// version returns the resource version from which a watch sees all later changes.
func (a *api) version(ctx context.Context, selector string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	var some corev1.PodList
	err := a.pods(http.MethodGet).Param("labelSelector", selector).Param("limit", "1").Do(ctx).Into(&some)
	return some.ResourceVersion, err
}

// follow watches Pods with matching labels from a resource version on.
func (a *api) follow(ctx context.Context, selector, version string) (watch.Interface, error) {
	return a.pods(http.MethodGet).Param("labelSelector", selector).Param("resourceVersion", version).
		Param("watch", "true").Param("allowWatchBookmarks", "true").Watch(ctx)
}

// remove deletes a Pod, with a time in which its processes may end by themselves.
func (a *api) remove(ctx context.Context, name string, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	seconds := int64(grace / time.Second)
	background := metav1.DeletePropagationBackground
	return a.pods(http.MethodDelete).Name(name).
		Body(&metav1.DeleteOptions{GracePeriodSeconds: &seconds, PropagationPolicy: &background}).
		Do(ctx).Error()
}

// discard deletes a Pod, if there is one.
func (a *api) discard(ctx context.Context, name string) error {
	if err := a.remove(ctx, name, endTime); !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// lastWarning returns the newest warning about a Pod, or "". The server may not be
// allowed to read events.
func (a *api) lastWarning(ctx context.Context, name string) string {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var events corev1.EventList
	err := a.rest.Get().Namespace(a.namespace).Resource("events").
		Param("fieldSelector", "involvedObject.name="+name+",type=Warning").Do(ctx).Into(&events)
	if err != nil || len(events.Items) == 0 {
		return ""
	}
	last := events.Items[0]
	for _, e := range events.Items {
		if e.LastTimestamp.After(last.LastTimestamp.Time) {
			last = e
		}
	}
	return last.Reason + ": " + last.Message
}

// object reads an object of another API group as JSON.
func (a *api) object(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	text, err := a.rest.Get().AbsPath(path).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// ask makes an object that is a question, and reads the answer. Every account may.
func (a *api) ask(ctx context.Context, group, kind string, spec map[string]any, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	body, err := json.Marshal(map[string]any{"apiVersion": group, "kind": kind, "spec": spec})
	if err != nil {
		return err
	}
	text, err := a.rest.Post().AbsPath("/apis/"+group+"/"+strings.ToLower(kind)+"s").
		SetHeader("Content-Type", "application/json").Body(body).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, answer)
}
