package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// apiClient asks the API server for what the launcher waits for.
type apiClient struct {
	base string
	http *http.Client
}

func newAPIClient(base string, p *pki) (*apiClient, error) {
	cert, err := tls.LoadX509KeyPair(p.path("admin.crt"), p.path("admin.key"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AddCert(p.cert)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}}}
	return &apiClient{base, &http.Client{Transport: transport, Timeout: 5 * time.Second}}, nil
}

// get decodes the object at a path; into may be nil.
func (a *apiClient) get(path string, into any) error {
	response, err := a.http.Get(a.base + path)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s", path, response.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(into)
}

func (a *apiClient) ready() error { return a.get("/readyz", nil) }

// node is what the launcher reads of a Node.
type node struct {
	Spec   struct{ Taints []any }
	Status struct {
		Allocatable map[string]string
		Conditions  []struct{ Type, Status, Message string }
	}
}

// schedulable reports what is still missing before pods can be created and scheduled. A pod made
// before its namespace's default service account exists would be refused.
func (a *apiClient) schedulable(name string, gpus int) error {
	if err := a.get("/api/v1/namespaces/default/serviceaccounts/default", nil); err != nil {
		return err
	}
	if err := a.get("/apis/storage.k8s.io/v1/storageclasses/minicluster", nil); err != nil {
		return err
	}
	var n node
	if err := a.get("/api/v1/nodes/"+name, &n); err != nil {
		return err
	}
	return n.missing(gpus)
}

func (n *node) missing(gpus int) error {
	if got := n.Status.Allocatable["nvidia.com/gpu"]; gpus > 0 && got != fmt.Sprint(gpus) {
		return fmt.Errorf("node offers %q GPUs", got)
	}
	for _, c := range n.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return fmt.Errorf("node is not Ready: %s", c.Message)
		}
	}
	if len(n.Spec.Taints) > 0 || len(n.Status.Conditions) == 0 {
		return fmt.Errorf("node has taints %v", n.Spec.Taints)
	}
	return nil
}
