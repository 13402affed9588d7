package main

// The process inside is pid 1 of the cluster's namespaces: it prepares their network and files,
// runs the components and writes the file "ready" once pods can be created and scheduled.

import (
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// cluster is one running cluster, seen from inside its namespaces.
type cluster struct {
	dir     string
	self    string // this program
	config  *Config
	pki     *pki
	run     *supervisor
	hostAPI string // the API server's address on the host
}

func (c *cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.dir}, elements...)...)
}

// inside runs the cluster until it gets SIGTERM.
func inside(args []string) error {
	dir, err := dirFlag("inside", args)
	if err != nil {
		return err
	}
	config, err := loadConfig(dir)
	if err != nil {
		return err
	}
	unix.CloseOnExec(lockFD)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := &cluster{dir: dir, self: self, config: config, run: newSupervisor(dir)}
	if err := c.prepare(); err != nil {
		return err
	}
	stopped := c.stopOnSignal()
	started := time.Now()
	if err := c.start(); err != nil {
		return err
	}
	log.Printf("node %s Ready after %.1f s", config.NodeName, time.Since(started).Seconds())
	if err := os.WriteFile(c.path("ready"), nil, 0o644); err != nil {
		return err
	}
	<-stopped
	return nil
}

// prepare makes directories, network, file view and certificates.
func (c *cluster) prepare() error {
	for _, d := range []string{"logs", "kubelet", "pod-logs", "volumes", "containers"} {
		if err := os.MkdirAll(c.path(d), 0o755); err != nil {
			return err
		}
	}
	return errors.Join(c.prepareNetwork(), prepareNodeView(c.path("view")), c.preparePKI())
}

// prepareNetwork sets up loopback and connects the port on the host with the API server.
func (c *cluster) prepareNetwork() error {
	if err := setUpLoopback(); err != nil {
		return err
	}
	l, err := net.FileListener(os.NewFile(apiListenerFD, "api"))
	if err != nil {
		return err
	}
	c.hostAPI = l.Addr().String()
	forward(l, localAPI)
	return nil
}

// preparePKI issues the certificates and kubeconfig files of the components and the administrator.
func (c *cluster) preparePKI() error {
	var err error
	if c.pki, err = newPKI(c.path("pki")); err != nil {
		return err
	}
	node := c.config.NodeName
	return errors.Join(
		c.pki.issue("apiserver", "kube-apiserver", "", "127.0.0.1", nodeIP, kubernetesIP, "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"),
		c.pki.issue("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
		c.pki.issue("admin", "admin", "system:masters"),
		c.pki.issue("controller-manager", "system:kube-controller-manager", ""),
		c.pki.issue("scheduler", "system:kube-scheduler", ""),
		c.pki.issue("kubelet", "system:node:"+node, "system:nodes", "127.0.0.1", nodeIP, node),
		c.pki.kubeconfig(c.path("controller-manager.kubeconfig"), "controller-manager", "https://"+localAPI),
		c.pki.kubeconfig(c.path("scheduler.kubeconfig"), "scheduler", "https://"+localAPI),
		c.pki.kubeconfig(c.path("kubelet.kubeconfig"), "kubelet", "https://"+localAPI),
		c.pki.kubeconfig(c.path("addons.kubeconfig"), "admin", "https://"+localAPI),
		c.pki.kubeconfig(c.path("admin.kubeconfig"), "admin", "https://"+c.hostAPI),
	)
}

// stopOnSignal ends the components on SIGTERM; the channel is closed when they have gone.
func (c *cluster) stopOnSignal() <-chan struct{} {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	stopped := make(chan struct{})
	go func() {
		<-signals
		began := time.Now()
		c.run.stop()
		log.Printf("stopped in %.1f s", time.Since(began).Seconds())
		close(stopped)
	}()
	return stopped
}

// start runs the components in the order in which they need each other.
func (c *cluster) start() error {
	if err := c.writeAuditPolicy(); err != nil {
		return err
	}
	if err := c.writeKubeletConfig(); err != nil {
		return err
	}
	api, err := newAPIClient("https://"+localAPI, c.pki)
	if err != nil {
		return err
	}
	c.run.start(c.etcd(), c.criServer(), c.apiServer())
	if err := c.waitFor("API server", 3*time.Minute, api.ready); err != nil {
		return err
	}
	c.run.start(c.controllerManager(), c.scheduler(), c.addons(), c.kubelet())
	return c.waitFor("node", 3*time.Minute, func() error { return api.schedulable(c.config.NodeName, c.config.GPUs) })
}

// waitFor polls until check gives no error, the cluster is stopped or the time is over.
func (c *cluster) waitFor(what string, limit time.Duration, check func() error) error {
	for end := time.Now().Add(limit); ; time.Sleep(100 * time.Millisecond) {
		err := check()
		switch {
		case err == nil:
			return nil
		case c.run.stopping():
			return fmt.Errorf("%s: stopped while starting", what)
		case time.Now().After(end):
			return fmt.Errorf("%s is not ready after %s: %w (see %s)", what, limit, err, c.path("logs"))
		}
	}
}
