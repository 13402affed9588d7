package main

import (
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (s *criServer) container(id string) (*container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.containers[id]; c != nil {
		return c, nil
	}
	return nil, notFound("container", id)
}

func (s *criServer) containersOf(sandboxID string) []*container {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []*container
	for _, c := range s.containers {
		if c.sandbox.id == sandboxID {
			found = append(found, c)
		}
	}
	return found
}

func (s *criServer) CreateContainer(_ context.Context, r *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	config, err := loadConfig(s.dir)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.sandboxes[r.PodSandboxId]
	if p == nil {
		return nil, notFound("pod sandbox", r.PodSandboxId)
	}
	name := imageName(r.Config.GetImage())
	image, known := config.image(name)
	if !known {
		return nil, notFound("image", name)
	}
	c := &container{id: newID(), sandbox: p, config: r.Config, image: name, created: time.Now(), done: make(chan struct{})}
	if c.spec, err = newSpec(config, image, p.config, r.Config); err != nil {
		return nil, err
	}
	c.spec.Scratch = filepath.Join(s.dir, "containers", c.id[:12])
	if r.Config.LogPath != "" {
		c.logPath = filepath.Join(p.config.LogDirectory, r.Config.LogPath)
	}
	s.containers[c.id] = c
	return &cri.CreateContainerResponse{ContainerId: c.id}, nil
}

func (s *criServer) StartContainer(_ context.Context, r *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	state := c.state
	s.mu.Unlock()
	if state != cri.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.FailedPrecondition, "container is in state %s", state)
	}
	if err := s.launch(c); err != nil {
		s.recordStartError(c, err)
		return nil, status.Error(codes.Unknown, err.Error())
	}
	return &cri.StartContainerResponse{}, nil
}

func (s *criServer) StopContainer(_ context.Context, r *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	if c, err := s.container(r.ContainerId); err == nil {
		s.stop(c, time.Duration(r.Timeout)*time.Second)
	}
	return &cri.StopContainerResponse{}, nil
}

func (s *criServer) RemoveContainer(_ context.Context, r *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	if c, err := s.container(r.ContainerId); err == nil {
		s.stop(c, 0)
		s.mu.Lock()
		delete(s.containers, c.id)
		s.mu.Unlock()
	}
	return &cri.RemoveContainerResponse{}, nil
}

func (s *criServer) ListContainers(_ context.Context, r *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var items []*cri.Container
	for _, c := range s.containers {
		if c.matches(r.GetFilter()) {
			items = append(items, &cri.Container{
				Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image,
				ImageRef: imageID(c.image), ImageId: imageID(c.image), State: c.state, CreatedAt: nanos(c.created),
				Labels: c.config.Labels, Annotations: c.config.Annotations,
			})
		}
	}
	slices.SortFunc(items, func(a, b *cri.Container) int { return int(b.CreatedAt - a.CreatedAt) })
	return &cri.ListContainersResponse{Containers: items}, nil
}

func (c *container) matches(f *cri.ContainerFilter) bool {
	return (f.GetId() == "" || f.GetId() == c.id) &&
		(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox.id) &&
		(f.GetState() == nil || f.State.State == c.state) &&
		hasLabels(c.config.Labels, f.GetLabelSelector())
}

func (s *criServer) ContainerStatus(_ context.Context, r *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	info := map[string]string{}
	if c.cmd != nil {
		info["pid"] = strconv.Itoa(c.cmd.Process.Pid)
	}
	return &cri.ContainerStatusResponse{Status: c.status(), Info: info}, nil
}

func (c *container) status() *cri.ContainerStatus {
	return &cri.ContainerStatus{
		Id: c.id, Metadata: c.config.Metadata, State: c.state,
		CreatedAt: nanos(c.created), StartedAt: nanos(c.started), FinishedAt: nanos(c.finished),
		ExitCode: c.exitCode, Reason: c.reason, Message: c.message,
		Image: &cri.ImageSpec{Image: c.image}, ImageRef: imageID(c.image), ImageId: imageID(c.image),
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.logPath,
		User: &cri.ContainerUser{Linux: &cri.LinuxContainerUser{Uid: int64(c.spec.UID), Gid: int64(c.spec.GID)}},
	}
}

// UpdateContainerResources accepts limits and does not enforce them: there are no cgroups.
func (s *criServer) UpdateContainerResources(context.Context, *cri.UpdateContainerResourcesRequest) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, nil
}

func (s *criServer) ReopenContainerLog(_ context.Context, r *cri.ReopenContainerLogRequest) (*cri.ReopenContainerLogResponse, error) {
	c, err := s.container(r.ContainerId)
	if err != nil {
		return nil, err
	}
	return &cri.ReopenContainerLogResponse{}, c.log.reopen()
}
