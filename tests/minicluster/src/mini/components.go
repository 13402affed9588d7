package main

// The command lines of the components. Ports are fixed: the network namespace is the cluster's own.

import (
	"strconv"
)

const (
	etcdClient  = "http://127.0.0.1:2379"
	etcdPeer    = "http://127.0.0.1:2380"
	kubeletPort = 10250
	dnsAddress  = dnsIP + ":53"
)

func (c *cluster) upstream(name string, args ...string) component {
	return component{name, append([]string{c.config.Programs.Kube, name}, args...)}
}

func (c *cluster) etcd() component {
	return c.upstream("etcd",
		"--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level", "warn",
		"--listen-client-urls", etcdClient, "--advertise-client-urls", etcdClient,
		"--listen-peer-urls", etcdPeer, "--initial-advertise-peer-urls", etcdPeer, "--initial-cluster", "default="+etcdPeer)
}

func (c *cluster) apiServer() component {
	args := []string{
		"--v=1", "--etcd-servers", etcdClient, "--bind-address", "0.0.0.0", "--advertise-address", nodeIP, "--secure-port", "6443",
		"--tls-cert-file", c.pki.path("apiserver.crt"), "--tls-private-key-file", c.pki.path("apiserver.key"),
		"--client-ca-file", c.pki.path("ca.crt"), "--cert-dir", c.pki.dir,
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.pki.path("sa.key"), "--service-account-signing-key-file", c.pki.path("sa.key"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction", "--allow-privileged",
		"--service-cluster-ip-range", serviceCIDR,
		"--kubelet-client-certificate", c.pki.path("apiserver-kubelet.crt"), "--kubelet-client-key", c.pki.path("apiserver-kubelet.key"),
		"--kubelet-certificate-authority", c.pki.path("ca.crt"), "--kubelet-preferred-address-types", "InternalIP",
	}
	if c.config.Audit {
		args = append(args, "--audit-policy-file", c.path("audit-policy.json"), "--audit-log-path", c.path("logs", "audit.log"))
	}
	return c.upstream("kube-apiserver", args...)
}

// controllerManager binds claims every second: by default a claim made before its volume waits 15 s.
func (c *cluster) controllerManager() component {
	return c.upstream("kube-controller-manager",
		"--v=1", "--kubeconfig", c.path("controller-manager.kubeconfig"), "--leader-elect=false", "--secure-port", "0", "--cert-dir", c.pki.dir,
		"--pvclaimbinder-sync-period", "1s", "--use-service-account-credentials",
		"--service-account-private-key-file", c.pki.path("sa.key"), "--root-ca-file", c.pki.path("ca.crt"))
}

func (c *cluster) scheduler() component {
	return c.upstream("kube-scheduler",
		"--v=1", "--kubeconfig", c.path("scheduler.kubeconfig"), "--leader-elect=false", "--secure-port", "0", "--cert-dir", c.pki.dir)
}

func (c *cluster) addons() component {
	return component{"addons", []string{
		c.config.Programs.Addons, "--kubeconfig", c.path("addons.kubeconfig"), "--dns", dnsAddress,
		"--node", c.config.NodeName, "--gpus", strconv.Itoa(c.config.GPUs), "--volumes", c.path("volumes"),
	}}
}

func (c *cluster) criServer() component {
	return component{"cri", []string{c.self, "cri", "--dir", c.dir}}
}

func (c *cluster) kubelet() component {
	k := c.upstream("kubelet",
		"--v=1", "--config", c.path("kubelet.json"), "--kubeconfig", c.path("kubelet.kubeconfig"), "--root-dir", c.path("kubelet"),
		"--cert-dir", c.pki.dir, "--hostname-override", c.config.NodeName, "--node-ip", nodeIP)
	if hasOneUser() {
		k.argv = append([]string{c.self, "fake-chown"}, k.argv...)
	}
	return k
}

// writeKubeletConfig turns off what needs cgroups, iptables or a disk of the cluster's own.
func (c *cluster) writeKubeletConfig() error {
	return writeJSON(c.path("kubelet.json"), object{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"containerRuntimeEndpoint": "unix://" + c.path(criSocket), "runtimeRequestTimeout": "2m",
		"address": nodeIP, "port": kubeletPort, "readOnlyPort": 0, "healthzPort": 0,
		"tlsCertFile": c.pki.path("kubelet.crt"), "tlsPrivateKeyFile": c.pki.path("kubelet.key"),
		"authentication": object{"anonymous": object{"enabled": false}, "webhook": object{"enabled": true}, "x509": object{"clientCAFile": c.pki.path("ca.crt")}},
		"authorization":  object{"mode": "Webhook"},
		"clusterDNS":     []string{dnsIP}, "clusterDomain": "cluster.local", "resolvConf": "",
		"cgroupDriver": "cgroupfs", "cgroupsPerQOS": false, "enforceNodeAllocatable": []string{}, "failCgroupV1": false, "failSwapOn": false,
		"makeIPTablesUtilChains": false, "oomScoreAdj": 0, "localStorageCapacityIsolation": false,
		"evictionHard": object{
			"memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%", "imagefs.available": "0%", "imagefs.inodesFree": "0%",
		},
		"imageGCHighThresholdPercent": 100, "imageGCLowThresholdPercent": 99, "serializeImagePulls": false, "registryPullQPS": 0,
		"maxPods": 200, "podLogsDir": c.path("pod-logs"), "volumePluginDir": c.path("volume-plugins"),
		"configMapAndSecretChangeDetectionStrategy": "Watch", "syncFrequency": "1s", "nodeStatusUpdateFrequency": "5s",
		"eventRecordQPS": 0, "kubeAPIQPS": 200, "kubeAPIBurst": 400, "shutdownGracePeriod": "0s",
		"featureGates": object{"KubeletInUserNamespace": hasOneUser()},
	})
}

func (c *cluster) writeAuditPolicy() error {
	if !c.config.Audit {
		return nil
	}
	return writeJSON(c.path("audit-policy.json"), object{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": []string{"RequestReceived"},
		"rules": []object{{"level": "Metadata"}},
	})
}
