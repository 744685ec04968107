package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	// The container sees the driver's files here: nothing can be mounted below /proc.
	driver = "/run/pretended-nvidia"
	// runc makes a device of this kind under any name.
	device0 = "/dev/null"
	render0 = 128
)

// pretended offers count devices. A container misses those whose IDs are listed in the file `lost`: GPUs that fell off.
func pretended(folder, resource string, count int) *plugin {
	ids := make([]string, count)
	for i := range ids {
		ids[i] = fmt.Sprint(i)
	}
	there := func(wanted []string) []string {
		lost, _ := os.ReadFile(filepath.Join(folder, "lost"))
		gone := strings.Fields(string(lost))
		return slices.DeleteFunc(slices.Sorted(slices.Values(wanted)), func(id string) bool { return slices.Contains(gone, id) })
	}
	vendor := func(ids []string) *api.ContainerAllocateResponse { return nvidia(folder, ids, count) }
	switch {
	case strings.HasPrefix(resource, "nvidia.com/mig-"):
		vendor = mig
	case strings.HasPrefix(resource, "amd.com/"):
		vendor = amd
	}
	return &plugin{resource: resource, ids: ids, allocate: func(wanted []string) *api.ContainerAllocateResponse {
		return vendor(there(wanted))
	}}
}

// nvidia shows all GPUs of the machine in the driver's files, as a real driver does, whatever the container has.
func nvidia(folder string, ids []string, count int) *api.ContainerAllocateResponse {
	gpus := filepath.Join(folder, "gpus")
	for i := range count {
		bus := filepath.Join(gpus, fmt.Sprintf("0000:%02x:00.0", 0x18+i))
		text := fmt.Sprintf("Model: \t\t NVIDIA Sandbox\nGPU UUID: \t %s\nDevice Minor: \t %d\n", uuid(fmt.Sprint(i)), i)
		if os.MkdirAll(bus, 0o755) == nil {
			os.WriteFile(filepath.Join(bus, "information"), []byte(text), 0o644)
		}
	}
	answer := &api.ContainerAllocateResponse{
		Envs:    map[string]string{"SELTZER_NVIDIA": driver, "NVIDIA_VISIBLE_DEVICES": names(ids, uuid)},
		Mounts:  []*api.Mount{{HostPath: gpus, ContainerPath: driver, ReadOnly: true}},
		Devices: []*api.DeviceSpec{device(device0, "/dev/nvidiactl")},
	}
	for _, id := range ids {
		answer.Devices = append(answer.Devices, device(device0, "/dev/nvidia"+id))
	}
	return answer
}

func mig(ids []string) *api.ContainerAllocateResponse {
	instance := func(id string) string { return fmt.Sprintf("MIG-00000000-0000-0000-0000-%012s", id) }
	return &api.ContainerAllocateResponse{
		Envs:    map[string]string{"NVIDIA_VISIBLE_DEVICES": names(ids, instance)},
		Devices: []*api.DeviceSpec{device(device0, "/dev/nvidiactl"), device(device0, "/dev/nvidia0")},
	}
}

func amd(ids []string) *api.ContainerAllocateResponse {
	answer := &api.ContainerAllocateResponse{Devices: []*api.DeviceSpec{device(device0, "/dev/kfd")}}
	for _, id := range ids {
		var number int
		fmt.Sscan(id, &number)
		answer.Devices = append(answer.Devices, device(device0, fmt.Sprintf("/dev/dri/renderD%d", render0+number)))
	}
	return answer
}

func uuid(id string) string { return fmt.Sprintf("GPU-00000000-0000-0000-0000-%012s", id) }

func names(ids []string, name func(string) string) string {
	found := make([]string, len(ids))
	for i, id := range ids {
		found[i] = name(id)
	}
	return strings.Join(found, ",")
}
