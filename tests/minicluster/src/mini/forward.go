package main

import (
	"io"
	"net"
)

// forward copies the connections of a listener to a TCP address.
func forward(l net.Listener, to string) {
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			go relay(from, to)
		}
	}()
}

func relay(from net.Conn, to string) {
	defer from.Close()
	conn, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		io.Copy(conn, from)
		conn.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(from, conn)
}
