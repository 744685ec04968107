package main

import (
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

var (
	gpuNode = regexp.MustCompile(`^/dev/nvidia([0-9]+)$`)
	// What every container with a GPU gets beside it.
	shared = []string{"/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"}
	// Where distributions and container runtimes put the driver's libraries and programs.
	libraries = []string{"/usr/lib/" + multiarch(), "/usr/lib64", "/usr/local/nvidia/lib64", "/usr/local/nvidia/lib"}
	programs  = []string{"/usr/bin", "/usr/local/nvidia/bin"}
)

// realGPUs offers the machine's GPUs. NVIDIA's own runtime does the same with more care; a sandbox has none.
func realGPUs() *plugin {
	found, _ := filepath.Glob("/dev/nvidia*")
	ids := []string{}
	for _, path := range found {
		if match := gpuNode.FindStringSubmatch(path); match != nil {
			ids = append(ids, match[1])
		}
	}
	return &plugin{resource: "nvidia.com/gpu", ids: ids, allocate: func(wanted []string) *api.ContainerAllocateResponse {
		answer := &api.ContainerAllocateResponse{Mounts: driverFiles()}
		for _, id := range wanted {
			answer.Devices = append(answer.Devices, device("/dev/nvidia"+id, "/dev/nvidia"+id))
		}
		for _, path := range shared {
			if _, err := os.Stat(path); err == nil {
				answer.Devices = append(answer.Devices, device(path, path))
			}
		}
		return answer
	}}
}

// driverFiles mounts the driver's libraries where every loader looks, whatever a job's environment says.
func driverFiles() (mounts []*api.Mount) {
	there := map[string]bool{}
	add := func(folders []string, pattern, target string) {
		for _, folder := range folders {
			paths, _ := filepath.Glob(filepath.Join(folder, pattern))
			for _, path := range paths {
				container := filepath.Join(target, filepath.Base(path))
				host, err := filepath.EvalSymlinks(path)
				if err == nil && !there[container] {
					there[container] = true
					mounts = append(mounts, &api.Mount{HostPath: host, ContainerPath: container, ReadOnly: true})
				}
			}
		}
	}
	for _, pattern := range []string{"libcuda.so*", "libcudadebugger.so*", "libnvidia-ml.so*", "libnvidia-ptxjitcompiler.so*",
		"libnvidia-nvvm*.so*", "libnvidia-gpucomp.so*"} {
		add(libraries, pattern, "/usr/lib/"+multiarch())
	}
	add(programs, "nvidia-smi", "/usr/bin")
	return mounts
}

func multiarch() string {
	return strings.NewReplacer("amd64", "x86_64", "arm64", "aarch64").Replace(runtime.GOARCH) + "-linux-gnu"
}
