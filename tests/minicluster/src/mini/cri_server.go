package main

// A server of the kubelet's container runtime interface (CRI v1) that runs every container as a
// local process in its own mount, pid, ipc and uts namespaces.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
)

// criSocket is the server's unix socket in the state directory.
const criSocket = "cri.sock"

type criServer struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer
	dir    string
	stream streaming.Server

	mu         sync.Mutex
	addresses  addressPool
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// serveCRI runs the server until SIGTERM, then ends the containers.
func serveCRI(args []string) error {
	dir, err := dirFlag("cri", args)
	if err != nil {
		return err
	}
	if _, err := loadConfig(dir); err != nil {
		return err
	}
	s, err := newCRIServer(dir)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", filepath.Join(dir, criSocket))
	if err != nil {
		return err
	}
	g := grpc.NewServer(grpc.MaxRecvMsgSize(16<<20), grpc.MaxSendMsgSize(16<<20))
	cri.RegisterRuntimeServiceServer(g, s)
	cri.RegisterImageServiceServer(g, s)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		<-signals
		s.stopAll(2 * time.Second)
		g.Stop()
	}()
	log.Printf("CRI server on %s", l.Addr())
	return g.Serve(l)
}

func newCRIServer(dir string) (*criServer, error) {
	s := &criServer{dir: dir, addresses: newAddressPool(podCIDR), sandboxes: map[string]*sandbox{}, containers: map[string]*container{}}
	os.Remove(filepath.Join(dir, criSocket)) // left by a server that was killed, with all its containers
	config := streaming.DefaultConfig
	config.Addr = "127.0.0.1:0"
	var err error
	if s.stream, err = streaming.NewServer(config, &streamRuntime{s}); err != nil {
		return nil, err
	}
	go s.stream.Start(true)
	return s, nil
}

func newID() string {
	b := make([]byte, 32)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func notFound(what, id string) error {
	return status.Errorf(codes.NotFound, "%s %q not found", what, id)
}

// nanos is a time as the CRI wants it: 0 for never.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func hasLabels(labels, wanted map[string]string) bool {
	for k, v := range wanted {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s *criServer) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "mini", RuntimeVersion: "0.1.0", RuntimeApiVersion: "v1"}, nil
}

func (s *criServer) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{
		Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
			{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true},
		}},
		RuntimeHandlers: []*cri.RuntimeHandler{{Name: "", Features: &cri.RuntimeHandlerFeatures{}}},
		Features:        &cri.RuntimeFeatures{},
	}, nil
}

func (s *criServer) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

func (s *criServer) UpdateRuntimeConfig(context.Context, *cri.UpdateRuntimeConfigRequest) (*cri.UpdateRuntimeConfigResponse, error) {
	return &cri.UpdateRuntimeConfigResponse{}, nil
}

// ListContainerStats reports nothing: the containers have no cgroups.
func (s *criServer) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

// ListPodSandboxStats reports nothing: the pods have no cgroups.
func (s *criServer) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}
