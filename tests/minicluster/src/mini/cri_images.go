package main

// Images are names only: one that the configuration describes is always present, any other cannot
// be pulled.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func imageName(spec *cri.ImageSpec) string {
	if name := spec.GetUserSpecifiedImage(); name != "" {
		return name
	}
	return spec.GetImage()
}

func imageID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// findImage describes a known image to the kubelet, which asks by name or, for images of existing
// containers, by id. It is nil for an unknown one.
func (s *criServer) findImage(ref string) (*cri.Image, error) {
	config, err := loadConfig(s.dir)
	if err != nil {
		return nil, err
	}
	name := s.nameOf(ref)
	image, known := config.image(name)
	if !known {
		return nil, nil
	}
	return &cri.Image{
		Id: imageID(name), RepoTags: []string{name}, Size: 1, Spec: &cri.ImageSpec{Image: name}, Uid: &cri.Int64Value{Value: image.UID},
	}, nil
}

func (s *criServer) nameOf(ref string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.containers {
		if imageID(c.image) == ref {
			return c.image
		}
	}
	return ref
}

func (s *criServer) ImageStatus(_ context.Context, r *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	image, err := s.findImage(r.GetImage().GetImage())
	return &cri.ImageStatusResponse{Image: image}, err
}

func (s *criServer) PullImage(_ context.Context, r *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	name := r.GetImage().GetImage()
	image, err := s.findImage(name)
	if err != nil {
		return nil, err
	}
	if image == nil {
		return nil, notFound("image", name)
	}
	return &cri.PullImageResponse{ImageRef: image.Id}, nil
}

// ListImages shows none: there is nothing for the kubelet to collect.
func (s *criServer) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{}, nil
}

func (s *criServer) RemoveImage(context.Context, *cri.RemoveImageRequest) (*cri.RemoveImageResponse, error) {
	return &cri.RemoveImageResponse{}, nil
}

func (s *criServer) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	fs := []*cri.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(), FsId: &cri.FilesystemIdentifier{Mountpoint: s.dir},
		UsedBytes: &cri.UInt64Value{Value: 1}, InodesUsed: &cri.UInt64Value{Value: 1},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: fs, ContainerFilesystems: fs}, nil
}
