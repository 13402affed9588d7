package main

// Another process in a running container, as kubectl exec and exec probes want it.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// execRequest is what the process that joins a container has to know.
type execRequest struct {
	PID  int // of the container's first process
	Spec Spec
	Args []string
}

// execCommand prepares a command in a running container; release closes what only its start needs.
func (s *criServer) execCommand(ctx context.Context, id string, args []string) (cmd *exec.Cmd, release func(), err error) {
	c, err := s.container(id)
	if err != nil {
		return nil, nil, err
	}
	s.mu.Lock()
	running, first := c.state == cri.ContainerState_CONTAINER_RUNNING, c.cmd
	s.mu.Unlock()
	if !running {
		return nil, nil, status.Errorf(codes.FailedPrecondition, "container is not running")
	}
	request, err := memoryFile(execRequest{first.Process.Pid, *c.spec, args})
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.CommandContext(ctx, "/proc/self/exe", "container-exec")
	cmd.ExtraFiles = []*os.File{request}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = time.Second
	return cmd, func() { request.Close() }, nil
}

// ExecSync runs a command and returns its output, as probes and lifecycle hooks want it.
func (s *criServer) ExecSync(ctx context.Context, r *cri.ExecSyncRequest) (*cri.ExecSyncResponse, error) {
	if r.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.Timeout)*time.Second)
		defer cancel()
	}
	cmd, release, err := s.execCommand(ctx, r.ContainerId, r.Cmd)
	if err != nil {
		return nil, err
	}
	defer release()
	var stdout, stderr limitedBuffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	if ctx.Err() == context.DeadlineExceeded {
		return nil, status.Errorf(codes.DeadlineExceeded, "command %q timed out", r.Cmd)
	}
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) && !errors.Is(err, exec.ErrWaitDelay) {
		return nil, err
	}
	return &cri.ExecSyncResponse{Stdout: stdout.b, Stderr: stderr.b, ExitCode: int32(exitCode(cmd.ProcessState))}, nil
}

// limitedBuffer keeps the first MiB of what is written to it.
type limitedBuffer struct{ b []byte }

func (l *limitedBuffer) Write(p []byte) (int, error) {
	if n := 1<<20 - len(l.b); n > 0 {
		l.b = append(l.b, p[:min(n, len(p))]...)
	}
	return len(p), nil
}

// containerExec only returns by ending the process, with the command's exit code or, as the shells
// have it, 126 or 127 if there was none.
func containerExec([]string) error {
	runtime.LockOSThread()
	code, err := runInContainer()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
	return nil
}

func runInContainer() (int, error) {
	var request execRequest
	if err := readMemoryFile(specFD, &request); err != nil {
		return 126, err
	}
	user := credential(&request.Spec)
	if err := joinNamespaces(request.PID); err != nil {
		return 126, err
	}
	if err := errors.Join(os.Chdir(request.Spec.Cwd), limitThread(&request.Spec)); err != nil {
		return 126, err
	}
	setEnvironment(request.Spec.Env)
	cmd := exec.Command(request.Args[0], request.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	if err := cmd.Start(); err != nil {
		return 127, err
	}
	go func() {
		<-stop // this process outlives the command to collect it: a zombie would keep the container from ending
		cmd.Process.Kill()
	}()
	cmd.Wait()
	return exitCode(cmd.ProcessState), nil
}

// joinNamespaces moves this thread, and the children it starts, into a container. The mount
// namespace comes last, because it takes /proc away.
func joinNamespaces(pid int) error {
	var files []*os.File
	for _, kind := range []string{"ipc", "uts", "pid", "mnt"} {
		f, err := os.Open(filepath.Join("/proc", strconv.Itoa(pid), "ns", kind))
		if err != nil {
			return err
		}
		defer f.Close()
		files = append(files, f)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil { // a mount namespace cannot be joined by threads that share a root
		return fmt.Errorf("unshare: %w", err)
	}
	for _, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("join %s: %w", f.Name(), err)
		}
	}
	return nil
}

// credential is the container's user, or nil where there is only one.
func credential(spec *Spec) *syscall.Credential {
	if hasOneUser() {
		return nil
	}
	c := &syscall.Credential{Uid: uint32(spec.UID), Gid: uint32(spec.GID)}
	for _, g := range spec.Groups {
		c.Groups = append(c.Groups, uint32(g))
	}
	return c
}
