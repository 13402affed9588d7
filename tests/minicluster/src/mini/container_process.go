package main

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// container is one container and, once started, its process. The server's lock guards the state.
type container struct {
	id      string
	sandbox *sandbox
	image   string
	config  *cri.ContainerConfig
	spec    *Spec
	logPath string
	log     *containerLog
	cmd     *exec.Cmd
	done    chan struct{} // closed when the process has ended

	state                      cri.ContainerState
	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
}

// startFiles connect the server with the first process of a container.
type startFiles struct {
	ours   struct{ status, stdout, stderr *os.File }
	theirs struct{ spec, status, stdout, stderr *os.File }
}

func newStartFiles(spec *Spec) (*startFiles, error) {
	f := &startFiles{}
	var errs [4]error
	f.theirs.spec, errs[0] = memoryFile(spec)
	f.ours.status, f.theirs.status, errs[1] = os.Pipe()
	f.ours.stdout, f.theirs.stdout, errs[2] = os.Pipe()
	f.ours.stderr, f.theirs.stderr, errs[3] = os.Pipe()
	err := errors.Join(errs[:]...)
	if err != nil {
		f.closeOurs()
		f.closeTheirs()
	}
	return f, err
}

func (f *startFiles) closeOurs() {
	for _, file := range []*os.File{f.ours.status, f.ours.stdout, f.ours.stderr} {
		file.Close()
	}
}

func (f *startFiles) closeTheirs() {
	for _, file := range []*os.File{f.theirs.spec, f.theirs.status, f.theirs.stdout, f.theirs.stderr} {
		file.Close()
	}
}

// launch starts a container's process and returns when its program runs or could not be run.
func (s *criServer) launch(c *container) error {
	if err := os.MkdirAll(c.spec.Scratch, 0o700); err != nil {
		return err
	}
	var err error
	if c.log, err = openLog(c.logPath); err != nil {
		return err
	}
	files, err := newStartFiles(c.spec)
	if err != nil {
		return err
	}
	cmd := initCommand(c.spec, files)
	err = cmd.Start()
	files.closeTheirs()
	if err != nil {
		files.closeOurs()
		return err
	}
	output := c.log.follow(files.ours.stdout, files.ours.stderr)
	if err := startFailure(files.ours.status); err != nil {
		cmd.Wait()
		output.Wait()
		os.Remove(c.spec.Scratch)
		return err
	}
	s.mu.Lock()
	c.cmd, c.state, c.started = cmd, cri.ContainerState_CONTAINER_RUNNING, time.Now()
	s.mu.Unlock()
	go s.watch(c, output)
	return nil
}

// initCommand is the process that becomes the container's program (see container_init.go).
func initCommand(spec *Spec, files *startFiles) *exec.Cmd {
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWIPC)
	if spec.NewPID {
		flags |= unix.CLONE_NEWPID
	}
	if spec.Hostname != "" {
		flags |= unix.CLONE_NEWUTS
	}
	cmd := exec.Command("/proc/self/exe", "container-init")
	cmd.Args[0] = "mini"
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = files.theirs.stdout, files.theirs.stderr, []*os.File{files.theirs.spec, files.theirs.status}
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true, Pdeathsig: syscall.SIGKILL}
	return cmd
}

// startFailure waits for the status pipe to close: empty when the program has been executed,
// otherwise with what went wrong.
func startFailure(status *os.File) error {
	defer status.Close()
	failure, err := io.ReadAll(status)
	if len(failure) > 0 {
		return errors.New(string(failure))
	}
	return err
}

// watch records the end of a container's process.
func (s *criServer) watch(c *container, output *sync.WaitGroup) {
	c.cmd.Wait()
	waitAtMost(output, 2*time.Second) // an orphan may hold the pipes open
	c.log.close()
	os.Remove(c.spec.Scratch)
	s.mu.Lock()
	defer s.mu.Unlock()
	c.state, c.finished = cri.ContainerState_CONTAINER_EXITED, time.Now()
	c.exitCode, c.reason = int32(exitCode(c.cmd.ProcessState)), "Completed"
	if c.exitCode != 0 {
		c.reason = "Error"
	}
	close(c.done)
}

func (s *criServer) recordStartError(c *container, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	c.state, c.started, c.finished = cri.ContainerState_CONTAINER_EXITED, now, now
	c.exitCode, c.reason, c.message = 128, "StartError", err.Error()
}

// exitCode follows the shells: 128 and the signal's number for a killed process.
func exitCode(state *os.ProcessState) int {
	if ws, ok := state.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return state.ExitCode()
}

func waitAtMost(wg *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// stop ends a container: with its stop signal first if there is time, then by force.
func (s *criServer) stop(c *container, grace time.Duration) {
	s.mu.Lock()
	cmd, running := c.cmd, c.state == cri.ContainerState_CONTAINER_RUNNING
	s.mu.Unlock()
	if !running {
		return
	}
	if grace > 0 {
		cmd.Process.Signal(stopSignal(c.config))
		select {
		case <-c.done:
			return
		case <-time.After(grace):
		}
	}
	cmd.Process.Kill()
	select {
	case <-c.done:
	case <-time.After(5 * time.Second):
	}
}

func stopSignal(config *cri.ContainerConfig) syscall.Signal {
	if n := unix.SignalNum(config.StopSignal.String()); n != 0 {
		return n
	}
	return syscall.SIGTERM
}

func (s *criServer) stopAll(grace time.Duration) {
	s.mu.Lock()
	var all []*container
	for _, c := range s.containers {
		all = append(all, c)
	}
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, c := range all {
		wg.Go(func() { s.stop(c, grace) })
	}
	wg.Wait()
}
