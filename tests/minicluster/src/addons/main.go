// addons are the parts of a cluster that come on top of upstream Kubernetes, in the small: a service
// proxy with a DNS server in place of kube-proxy and CoreDNS, a provisioner of local volumes, and
// GPUs as an extended resource in place of a device plugin.
package main

import (
	"context"
	"flag"
	"time"

	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig of an administrator")
	dns := flag.String("dns", "", "address of the cluster DNS (UDP)")
	node := flag.String("node", "", "name of the node")
	gpus := flag.Int64("gpus", 0, "GPUs that the node offers")
	volumes := flag.String("volumes", "", "directory of the provisioned volumes")
	flag.Parse()
	if err := run(context.Background(), *kubeconfig, *dns, *node, *gpus, *volumes); err != nil {
		klog.ErrorS(err, "Cannot run")
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}

func run(ctx context.Context, kubeconfig, dns, node string, gpus int64, volumes string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 100, 200
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services()
	slices := factory.Discovery().V1().EndpointSlices()
	claims := factory.Core().V1().PersistentVolumeClaims()
	persistent := factory.Core().V1().PersistentVolumes()
	nodes := factory.Core().V1().Nodes()

	proxy := newServiceProxy(endpointFinder{services.Lister(), slices.Lister()})
	if err := serveDNS(dns, proxy.find); err != nil {
		return err
	}
	provisioner := &provisioner{client: client, dir: volumes, claims: claims.Lister(), volumes: persistent.Lister()}
	if err := provisioner.createStorageClass(ctx); err != nil {
		return err
	}
	slices.Informer()
	loops := []loop{
		newLoop("service proxy", proxy.sync, services.Informer()),
		newLoop("provisioner", provisioner.sync, claims.Informer(), persistent.Informer()),
		newLoop("gpus", (&gpuAdvertiser{client, nodes.Lister(), node, gpus}).sync, nodes.Informer()),
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	for _, l := range loops {
		go l.run(ctx)
	}
	<-ctx.Done()
	return nil
}

// endpointFinder looks up services and their endpoints in the cluster's caches.
type endpointFinder struct {
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
}

// loop calls a level-triggered function after every change of what its informers watch, and once
// more a second after it has failed.
type loop struct {
	name    string
	sync    func(context.Context) error
	changed chan struct{}
}

func newLoop(name string, sync func(context.Context) error, informers ...cache.SharedIndexInformer) loop {
	l := loop{name, sync, make(chan struct{}, 1)}
	for _, i := range informers {
		i.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { l.kick() }, UpdateFunc: func(any, any) { l.kick() }, DeleteFunc: func(any) { l.kick() },
		})
	}
	return l
}

// kick asks for another call; one that is already asked for is enough.
func (l loop) kick() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

func (l loop) run(ctx context.Context) {
	for range l.changed {
		if err := l.sync(ctx); err != nil {
			klog.ErrorS(err, "Will try again", "loop", l.name)
			time.AfterFunc(time.Second, l.kick)
		}
	}
}
