package main

import (
	"context"
	"flag"
	"fmt"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// killContainer sends SIGKILL to the first process of a running container, behind the kubelet's back.
func killContainer(args []string) error {
	flags := flag.NewFlagSet("mini kill-container", flag.ContinueOnError)
	dir := flags.String("dir", "", "state directory of the cluster")
	namespace := flags.String("namespace", "default", "namespace of the pod")
	pod := flags.String("pod", "", "name of the pod")
	name := flags.String("container", "", "name of the container")
	if err := flags.Parse(args); err != nil {
		return err
	}
	conn, err := grpc.NewClient("unix://"+filepath.Join(*dir, criSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	labels := map[string]string{"io.kubernetes.pod.namespace": *namespace, "io.kubernetes.pod.name": *pod, "io.kubernetes.container.name": *name}
	return killByLabels(ctx, cri.NewRuntimeServiceClient(conn), labels)
}

func killByLabels(ctx context.Context, runtime cri.RuntimeServiceClient, labels map[string]string) error {
	running := &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING}
	list, err := runtime.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{State: running, LabelSelector: labels}})
	if err != nil {
		return err
	}
	if len(list.Containers) != 1 {
		return fmt.Errorf("%d running containers have the labels %v", len(list.Containers), labels)
	}
	_, err = runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: list.Containers[0].Id})
	return err
}
