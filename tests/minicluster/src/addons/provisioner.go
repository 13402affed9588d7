package main

// The provisioner gives every claim of the default storage class a directory, so that a claim binds
// by itself, and removes the directory with the claim.

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
)

const (
	storageClass          = "minicluster"
	provisionerName       = "gatevalve.dev/minicluster"
	provisionedAnnotation = "pv.kubernetes.io/provisioned-by"
)

type provisioner struct {
	client  kubernetes.Interface
	dir     string
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

func (p *provisioner) createStorageClass(ctx context.Context) error {
	class := &storage.StorageClass{
		ObjectMeta:  meta.ObjectMeta{Name: storageClass, Annotations: map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}},
		Provisioner: provisionerName,
	}
	_, err := p.client.StorageV1().StorageClasses().Create(ctx, class, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// sync makes the missing volumes and deletes the released ones.
func (p *provisioner) sync(ctx context.Context) error {
	claims, claimsErr := p.claims.List(labels.Everything())
	volumes, volumesErr := p.volumes.List(labels.Everything())
	failures := []error{claimsErr, volumesErr}
	for _, c := range claims {
		if wantsVolume(c) {
			failures = append(failures, p.provision(ctx, c))
		}
	}
	for _, v := range volumes {
		if isReleased(v) {
			failures = append(failures, p.remove(ctx, v))
		}
	}
	return errors.Join(failures...)
}

func wantsVolume(c *core.PersistentVolumeClaim) bool {
	class := c.Spec.StorageClassName
	return class != nil && *class == storageClass && c.Spec.VolumeName == "" && c.DeletionTimestamp == nil
}

func isReleased(v *core.PersistentVolume) bool {
	return v.Annotations[provisionedAnnotation] == provisionerName && v.Status.Phase == core.VolumeReleased &&
		v.Spec.PersistentVolumeReclaimPolicy == core.PersistentVolumeReclaimDelete
}

func (p *provisioner) provision(ctx context.Context, c *core.PersistentVolumeClaim) error {
	v := volumeFor(c, p.dir)
	if _, err := p.volumes.Get(v.Name); err == nil {
		return nil
	}
	path := v.Spec.HostPath.Path
	if err := os.MkdirAll(path, 0o777); err != nil {
		return err
	}
	if err := os.Chmod(path, 0o777); err != nil { // whatever the umask: pods run as any user
		return err
	}
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, v, meta.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// volumeFor is the volume of a claim, bound to it from the start.
func volumeFor(c *core.PersistentVolumeClaim, dir string) *core.PersistentVolume {
	name := "pvc-" + string(c.UID)
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedAnnotation: provisionerName}},
		Spec: core.PersistentVolumeSpec{
			StorageClassName:              storageClass,
			Capacity:                      core.ResourceList{core.ResourceStorage: c.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   c.Spec.AccessModes,
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        core.PersistentVolumeSource{HostPath: &core.HostPathVolumeSource{Path: filepath.Join(dir, name)}},
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID,
			},
		},
	}
}

func (p *provisioner) remove(ctx context.Context, v *core.PersistentVolume) error {
	if err := os.RemoveAll(v.Spec.HostPath.Path); err != nil {
		return err
	}
	err := p.client.CoreV1().PersistentVolumes().Delete(ctx, v.Name, meta.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
