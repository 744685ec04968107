// pause is the first process of a PID namespace: of a pod's, of a sandbox node's, of the sandbox's hub.
//
// It does nothing but reap what it inherits; when it ends, the kernel ends everything else in the namespace.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGCHLD, syscall.SIGTERM, syscall.SIGINT)
	for received := range signals {
		if received != syscall.SIGCHLD {
			return // the kubelet asks a pod's sandbox to end this way
		}
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if err == syscall.EINTR {
				continue
			}
			if pid <= 0 {
				break
			}
		}
	}
}
