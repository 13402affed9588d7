package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandbox is a pod: an address that its containers share.
type sandbox struct {
	id      string
	config  *cri.PodSandboxConfig
	handler string
	created time.Time
	ready   bool
	ip      netip.Addr // the zero value for pods on the host network
}

func (p *sandbox) address() string {
	if !p.ip.IsValid() {
		return ""
	}
	return p.ip.String()
}

func (p *sandbox) state() cri.PodSandboxState {
	if p.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

// addressPool hands out the addresses of the pod network in turn, so that one just given back is
// not used again soon.
type addressPool struct {
	network netip.Prefix
	last    netip.Addr
	used    map[netip.Addr]bool
}

func newAddressPool(cidr string) addressPool {
	p := netip.MustParsePrefix(cidr)
	return addressPool{network: p, last: p.Addr().Next(), used: map[netip.Addr]bool{}}
}

func (a *addressPool) take() (netip.Addr, error) {
	for range 1 << (32 - a.network.Bits()) {
		a.last = a.last.Next()
		if !a.network.Contains(a.last) {
			a.last = a.network.Addr().Next().Next()
		}
		if !a.used[a.last] {
			a.used[a.last] = true
			return a.last, nil
		}
	}
	return netip.Addr{}, errors.New("no free pod address")
}

func (s *criServer) RunPodSandbox(_ context.Context, r *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &sandbox{id: newID(), config: r.Config, handler: r.RuntimeHandler, created: time.Now(), ready: true}
	if r.Config.LogDirectory != "" {
		if err := os.MkdirAll(r.Config.LogDirectory, 0o755); err != nil {
			return nil, err
		}
	}
	if r.Config.GetLinux().GetSecurityContext().GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		ip, err := s.addresses.take()
		if err != nil {
			return nil, err
		}
		if err := addAddress(ip); err != nil {
			return nil, err
		}
		p.ip = ip
	}
	s.sandboxes[p.id] = p
	return &cri.RunPodSandboxResponse{PodSandboxId: p.id}, nil
}

func (s *criServer) StopPodSandbox(_ context.Context, r *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	for _, c := range s.containersOf(r.PodSandboxId) {
		s.stop(c, 0)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.sandboxes[r.PodSandboxId]; p != nil && p.ready {
		p.ready = false
		if p.ip.IsValid() {
			return &cri.StopPodSandboxResponse{}, removeAddress(p.ip)
		}
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (s *criServer) RemovePodSandbox(ctx context.Context, r *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	if _, err := s.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: r.PodSandboxId}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, c := range s.containers {
		if c.sandbox.id == r.PodSandboxId {
			delete(s.containers, id)
		}
	}
	if p := s.sandboxes[r.PodSandboxId]; p != nil {
		delete(s.addresses.used, p.ip)
		delete(s.sandboxes, p.id)
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func (s *criServer) PodSandboxStatus(_ context.Context, r *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.sandboxes[r.PodSandboxId]
	if p == nil {
		return nil, notFound("pod sandbox", r.PodSandboxId)
	}
	namespaces := &cri.Namespace{Options: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions()}
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id: p.id, Metadata: p.config.Metadata, State: p.state(), CreatedAt: nanos(p.created),
		Network: &cri.PodSandboxNetworkStatus{Ip: p.address()}, Linux: &cri.LinuxPodSandboxStatus{Namespaces: namespaces},
		Labels: p.config.Labels, Annotations: p.config.Annotations, RuntimeHandler: p.handler,
	}}, nil
}

func (s *criServer) ListPodSandbox(_ context.Context, r *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []*cri.PodSandbox
	for _, p := range s.sandboxes {
		if p.matches(r.GetFilter()) {
			items = append(items, &cri.PodSandbox{
				Id: p.id, Metadata: p.config.Metadata, State: p.state(), CreatedAt: nanos(p.created),
				Labels: p.config.Labels, Annotations: p.config.Annotations, RuntimeHandler: p.handler,
			})
		}
	}
	slices.SortFunc(items, func(a, b *cri.PodSandbox) int { return int(b.CreatedAt - a.CreatedAt) })
	return &cri.ListPodSandboxResponse{Items: items}, nil
}

func (p *sandbox) matches(f *cri.PodSandboxFilter) bool {
	return (f.GetId() == "" || f.GetId() == p.id) &&
		(f.GetState() == nil || f.State.State == p.state()) &&
		hasLabels(p.config.Labels, f.GetLabelSelector())
}
