package main

// kubectl exec and port-forward, on the streaming server of k8s.io/cri-streaming.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	utilexec "k8s.io/utils/exec"
)

func (s *criServer) Exec(_ context.Context, r *cri.ExecRequest) (*cri.ExecResponse, error) {
	return s.stream.GetExec(r)
}

func (s *criServer) Attach(_ context.Context, r *cri.AttachRequest) (*cri.AttachResponse, error) {
	return s.stream.GetAttach(r)
}

func (s *criServer) PortForward(_ context.Context, r *cri.PortForwardRequest) (*cri.PortForwardResponse, error) {
	return s.stream.GetPortForward(r)
}

// streamRuntime is what the streaming server calls once a client has connected to it.
type streamRuntime struct{ s *criServer }

// Exec runs a command. There are no pseudo terminals: with a TTY both streams share one pipe.
func (t *streamRuntime) Exec(
	ctx context.Context, id string, args []string, in io.Reader, out, errw io.WriteCloser, tty bool, _ <-chan remotecommand.TerminalSize,
) error {
	cmd, release, err := t.s.execCommand(ctx, id, args)
	if err != nil {
		return err
	}
	defer release()
	if out != nil {
		cmd.Stdout = out
	}
	if errw != nil {
		cmd.Stderr = errw
	} else if tty {
		cmd.Stderr = out
	}
	if in != nil {
		if err := feed(cmd, in); err != nil {
			return err
		}
	}
	err = cmd.Run()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return &utilexec.CodeExitError{Err: err, Code: exitCode(exited.ProcessState)}
	}
	return err
}

// feed copies the client's input. It is not the command's Stdin, because the end of the command
// would then wait for the end of the input.
func feed(cmd *exec.Cmd, in io.Reader) error {
	w, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	go func() {
		io.Copy(w, in)
		w.Close()
	}()
	return nil
}

func (t *streamRuntime) Attach(context.Context, string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize) error {
	return errors.New("attach is not supported")
}

func (t *streamRuntime) PortForward(_ context.Context, sandboxID string, port int32, stream io.ReadWriteCloser) error {
	t.s.mu.Lock()
	p := t.s.sandboxes[sandboxID]
	t.s.mu.Unlock()
	if p == nil {
		return notFound("pod sandbox", sandboxID)
	}
	conn, err := dialPod(p.address(), port)
	if err != nil {
		return err
	}
	defer conn.Close()
	go func() {
		io.Copy(conn, stream)
		conn.(*net.TCPConn).CloseWrite()
	}()
	_, err = io.Copy(stream, conn)
	return err
}

// dialPod prefers the pod's address; as in other clusters, a server on the pod's loopback works too.
func dialPod(address string, port int32) (net.Conn, error) {
	if address != "" {
		if conn, err := net.Dial("tcp", net.JoinHostPort(address, fmt.Sprint(port))); err == nil {
			return conn, nil
		}
	}
	return net.Dial("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
}
