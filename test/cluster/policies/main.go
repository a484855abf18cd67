// Command policies enforces a cluster's NetworkPolicies on its only node by rules of the
// kernel's packet filter, with kube-router's controller. It prints "ready" when the
// controller has seen all policies and Pods. It ends with SIGTERM, and removes its rules.
//
//	policies KUBECONFIG NODE
//
// It is no part of command kubernetes, because packages of kube-router change the packet
// filter as soon as a program that has them starts.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/cloudnativelabs/kube-router/v2/pkg/controllers/netpol"
	"github.com/cloudnativelabs/kube-router/v2/pkg/healthcheck"
	"github.com/cloudnativelabs/kube-router/v2/pkg/options"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// services is the range of the cluster's services, which test/cluster/node.sh sets.
const services = "10.96.0.0/16"

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "policies: usage: policies KUBECONFIG NODE")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := enforce(ctx, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// enforce enforces policies until ctx ends.
func enforce(ctx context.Context, kubeconfig, node string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	pods := factory.Core().V1().Pods().Informer()
	policies := factory.Networking().V1().NetworkPolicies().Informer()
	namespaces := factory.Core().V1().Namespaces().Informer()

	opts := options.NewKubeRouterConfig()
	opts.EnableIPv4, opts.HostnameOverride, opts.ClusterIPCIDRs = true, node, []string{services}
	var sets sync.Mutex
	open := func() (*netpol.NetworkPolicyController, error) {
		tables, handlers, err := netpol.NewIPTablesHandlers(opts)
		if err != nil {
			return nil, err
		}
		return netpol.NewNetworkPolicyController(client, opts, pods, policies, namespaces, &sets, tables, handlers)
	}
	c, err := open()
	if err != nil {
		return err
	}
	for informer, handler := range map[cache.SharedIndexInformer]cache.ResourceEventHandler{
		pods: c.PodEventHandler, policies: c.NetworkPolicyEventHandler, namespaces: c.NamespaceEventHandler,
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return err
		}
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("%v were not listed", kind)
		}
	}

	beats := make(chan *healthcheck.ControllerHeartbeat) // one for each time that the rules are made
	var running sync.WaitGroup
	running.Add(1)
	go c.Run(beats, ctx.Done(), &running)
	fmt.Println("ready")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		running.Wait()
	}()
	for {
		select {
		case <-beats:
			continue
		case <-ended:
		}
		break
	}
	// The controller that ran has rules in memory that it would write again.
	last, err := open()
	if err != nil {
		return err
	}
	last.Cleanup()
	return nil
}
