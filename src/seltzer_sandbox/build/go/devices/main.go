// devices is the device plugin of a sandbox's node: it offers GPUs to the kubelet.
//
// They are pretended: a container gets /dev/nvidia0 and so on, which are /dev/null, and what the driver says about them.
// Everything from the pod's limits to CUDA_VISIBLE_DEVICES is real. With --real it offers the machine's own GPUs, with the
// driver's libraries.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	callDeadline = 10 * time.Second
	lookEvery    = 500 * time.Millisecond
)

// plugin offers one resource.
type plugin struct {
	api.UnimplementedDevicePluginServer
	resource string
	ids      []string
	allocate func(ids []string) *api.ContainerAllocateResponse
}

func main() {
	folder := flag.String("folder", "/var/lib/seltzer-devices", "where the plugin keeps its files")
	offer := flag.String("offer", "", "what it pretends to have, such as nvidia.com/gpu=4,amd.com/gpu=2")
	real := flag.Bool("real", false, "offer the machine's own NVIDIA GPUs as nvidia.com/gpu")
	flag.Parse()
	plugins, err := offered(*folder, *offer)
	if *real {
		plugins = append(plugins, realGPUs())
	}
	if err != nil || len(plugins) == 0 {
		fmt.Fprintln(os.Stderr, "devices: usage: devices [--real] [--offer RESOURCE=COUNT,...] [--folder FOLDER]:", err)
		os.Exit(2)
	}
	for _, each := range plugins {
		go each.serveForever()
	}
	select {}
}

func offered(folder, offer string) (plugins []*plugin, err error) {
	for _, word := range strings.FieldsFunc(offer, func(r rune) bool { return r == ',' }) {
		resource, number, _ := strings.Cut(word, "=")
		count, err := strconv.Atoi(number)
		if err != nil || count < 1 {
			return nil, fmt.Errorf("%q isn't RESOURCE=COUNT", word)
		}
		plugins = append(plugins, pretended(folder, resource, count))
	}
	return plugins, nil
}

// serveForever registers again whenever the kubelet has removed our socket, which it does when it starts.
func (p *plugin) serveForever() {
	name := "seltzer-" + strings.NewReplacer("/", "-", ".", "-").Replace(p.resource) + ".sock"
	socket := filepath.Join(api.DevicePluginPath, name)
	for {
		if err := p.serve(socket, name); err != nil {
			fmt.Fprintf(os.Stderr, "devices: %s: %v\n", p.resource, err)
		}
		time.Sleep(lookEvery)
	}
}

func (p *plugin) serve(socket, name string) error {
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err // there is no kubelet yet
	}
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)
	defer server.Stop()
	if err := p.register(name); err != nil {
		return err
	}
	for {
		if _, err := os.Stat(socket); err != nil {
			return nil
		}
		time.Sleep(lookEvery)
	}
}

func (p *plugin) register(name string) error {
	connection, err := grpc.NewClient("unix://"+api.KubeletSocket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), callDeadline)
	defer cancel()
	request := &api.RegisterRequest{Version: api.Version, Endpoint: name, ResourceName: p.resource}
	_, err = api.NewRegistrationClient(connection).Register(ctx, request)
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	devices := make([]*api.Device, len(p.ids))
	for i, id := range p.ids {
		devices[i] = &api.Device{ID: id, Health: api.Healthy}
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, p.allocate(container.DevicesIds))
	}
	return answer, nil
}

func device(host, container string) *api.DeviceSpec {
	return &api.DeviceSpec{HostPath: host, ContainerPath: container, Permissions: "rw"}
}
