// forward FILE ADDRESS passes every connection on the listening socket that it inherits as file number FILE on to ADDRESS.
//
// The socket was made in the host's network namespace, forward runs in the hub's: so the host reaches the API server
// on its own loopback, and nothing of the host's network changes.
package main

import (
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: forward FILE ADDRESS, FILE being the number of an inherited listening socket")
		os.Exit(2)
	}
	number, err := strconv.Atoi(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		os.Exit(2)
	}
	listener, err := net.FileListener(os.NewFile(uintptr(number), "listener"))
	if err != nil {
		fmt.Fprintf(os.Stderr, "forward: file %d is no listening socket: %v\n", number, err)
		os.Exit(2)
	}
	for {
		client, err := listener.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "forward: accept:", err)
			time.Sleep(100 * time.Millisecond) // out of files: some will be closed
			continue
		}
		go forward(client.(*net.TCPConn), os.Args[2])
	}
}

func forward(client *net.TCPConn, address string) {
	defer client.Close()
	connection, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		return
	}
	server := connection.(*net.TCPConn)
	defer server.Close()
	done := make(chan struct{})
	go func() {
		pass(server, client)
		close(done)
	}()
	pass(client, server)
	<-done
}

// pass copies until one side ends; half-closes are passed on, since exec and port-forward use them.
func pass(to, from *net.TCPConn) {
	if _, err := io.Copy(to, from); err != nil {
		to.Close() // a reset: don't make the other side wait for the rest
		return
	}
	to.CloseWrite()
}
