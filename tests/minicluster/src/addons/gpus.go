package main

import (
	"context"
	"encoding/json"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const gpuResource core.ResourceName = "nvidia.com/gpu"

// gpuAdvertiser keeps the node's status offering GPUs. Programs get none: only scheduling is real.
type gpuAdvertiser struct {
	client kubernetes.Interface
	nodes  corelisters.NodeLister
	node   string
	gpus   int64
}

func (a *gpuAdvertiser) sync(ctx context.Context) error {
	node, err := a.nodes.Get(a.node)
	if apierrors.IsNotFound(err) || a.gpus == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	wanted := *resource.NewQuantity(a.gpus, resource.DecimalSI)
	if node.Status.Capacity.Name(gpuResource, resource.DecimalSI).Equal(wanted) &&
		node.Status.Allocatable.Name(gpuResource, resource.DecimalSI).Equal(wanted) {
		return nil
	}
	offer := core.ResourceList{gpuResource: wanted}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": offer, "allocatable": offer}})
	if err != nil {
		return err
	}
	_, err = a.client.CoreV1().Nodes().Patch(ctx, a.node, types.StrategicMergePatchType, patch, meta.PatchOptions{}, "status")
	return err
}
