// volumes makes the sandbox's persistent volumes: a folder each, seen by every node, so ReadWriteMany is real.
//
// A class with the parameter limited=true gets a file system of the size that was asked for: writing more fails with
// "No space left on device", as on a real volume. It is mounted in the hub and reaches the nodes by mount propagation.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	provisioner   = "sandbox.seltzer.dev/volumes"
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	limited       = "limited"
	callDeadline  = 10 * time.Second
	retryDelay    = time.Second
)

type volumes struct {
	client  kubernetes.Interface
	folder  string
	classes storagelisters.StorageClassLister
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the API server")
	folder := flag.String("folder", "", "where the volumes are, here and on every node")
	flag.Parse()
	if *kubeconfig == "" || *folder == "" {
		fmt.Fprintln(os.Stderr, "usage: volumes --kubeconfig FILE --folder FOLDER")
		os.Exit(2)
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		os.Exit(2)
	}
	run(kubernetes.NewForConfigOrDie(config), *folder)
}

// run looks at everything again whenever anything changed. There are few volumes; a work queue would buy nothing.
func run(client kubernetes.Interface, folder string) {
	factory := informers.NewSharedInformerFactory(client, 0)
	v := &volumes{
		client:  client,
		folder:  folder,
		classes: factory.Storage().V1().StorageClasses().Lister(),
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
	}
	changed := make(chan struct{}, 1)
	poke := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { poke() },
		UpdateFunc: func(any, any) { poke() },
		DeleteFunc: func(any) { poke() },
	}
	for _, informer := range []cache.SharedIndexInformer{
		factory.Storage().V1().StorageClasses().Informer(),
		factory.Core().V1().PersistentVolumeClaims().Informer(),
		factory.Core().V1().PersistentVolumes().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			fmt.Fprintln(os.Stderr, "volumes:", err)
			os.Exit(1)
		}
	}
	forever := make(chan struct{})
	factory.Start(forever)
	factory.WaitForCacheSync(forever)
	for range changed {
		if err := v.pass(); err != nil {
			fmt.Fprintln(os.Stderr, "volumes:", err)
			time.AfterFunc(retryDelay, poke)
		}
	}
}

// pass provisions every claim that waits for us, mounts what should be mounted and removes every volume that was
// released; it returns the last error.
func (v *volumes) pass() (failed error) {
	claims, _ := v.claims.List(labels.Everything())
	for _, claim := range claims {
		if claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil || claim.DeletionTimestamp != nil {
			continue
		}
		class, err := v.classes.Get(*claim.Spec.StorageClassName)
		if err != nil || class.Provisioner != provisioner {
			continue
		}
		if err := v.provision(claim, class); err != nil {
			failed = fmt.Errorf("claim %s/%s: %w", claim.Namespace, claim.Name, err)
		}
	}
	all, _ := v.volumes.List(labels.Everything())
	for _, volume := range all {
		ours := volume.Annotations[provisionedBy] == provisioner
		if ours && volume.Status.Phase == core.VolumeBound {
			// After a restart of the hub its mounts are gone: without this the volume would have no limit.
			if class, err := v.classes.Get(volume.Spec.StorageClassName); err == nil && class.Parameters[limited] == "true" {
				size := volume.Spec.Capacity[core.ResourceStorage]
				if err := mountLimited(volume.Spec.Local.Path, size.Value()); err != nil {
					failed = fmt.Errorf("volume %s: %w", volume.Name, err)
				}
			}
		}
		if !ours || volume.Status.Phase != core.VolumeReleased ||
			volume.Spec.PersistentVolumeReclaimPolicy != core.PersistentVolumeReclaimDelete {
			continue
		}
		if err := v.remove(volume); err != nil {
			failed = fmt.Errorf("volume %s: %w", volume.Name, err)
		}
	}
	return failed
}

// provision may run again after any failure: each of its steps accepts that it was done before.
func (v *volumes) provision(claim *core.PersistentVolumeClaim, class *storage.StorageClass) error {
	name := "pvc-" + string(claim.UID)
	if _, err := v.volumes.Get(name); err == nil {
		return nil // made already; Kubernetes is about to bind it
	}
	path := filepath.Join(v.folder, name)
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	size := claim.Spec.Resources.Requests[core.ResourceStorage]
	if class.Parameters[limited] == "true" {
		if err := mountLimited(path, size.Value()); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	_, err := v.client.CoreV1().PersistentVolumes().Create(ctx, manifest(name, path, claim, class), meta.CreateOptions{})
	if errors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// manifest uses a local volume rather than a hostPath one, since the kubelet then honours fsGroup as on a real volume.
func manifest(name, path string, claim *core.PersistentVolumeClaim, class *storage.StorageClass) *core.PersistentVolume {
	everyNode := core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{
		{Key: "kubernetes.io/os", Operator: core.NodeSelectorOpIn, Values: []string{"linux"}},
	}}
	return &core.PersistentVolume{
		ObjectMeta: meta.ObjectMeta{Name: name, Annotations: map[string]string{provisionedBy: provisioner}},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: claim.Spec.Resources.Requests[core.ResourceStorage]},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              class.Name,
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			ClaimRef: &core.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: core.PersistentVolumeSource{Local: &core.LocalVolumeSource{Path: path}},
			NodeAffinity: &core.VolumeNodeAffinity{
				Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{everyNode}},
			},
		},
	}
}

func (v *volumes) remove(volume *core.PersistentVolume) error {
	path := filepath.Join(v.folder, volume.Name)
	if mounted(path) {
		// Detached: a node that is slow to let go must not keep us waiting.
		if err := syscall.Unmount(path, syscall.MNT_DETACH); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, meta.DeleteOptions{})
	if errors.IsNotFound(err) {
		return nil
	}
	return err
}

func mountLimited(path string, size int64) error {
	if mounted(path) {
		return nil
	}
	return syscall.Mount("limited", path, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0755", size))
}

// mounted tells whether something is mounted there: its device is not its parent's.
func mounted(path string) bool {
	var here, above syscall.Stat_t
	if syscall.Stat(path, &here) != nil || syscall.Stat(filepath.Dir(path), &above) != nil {
		return false
	}
	return here.Dev != above.Dev
}
