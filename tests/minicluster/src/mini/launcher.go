package main

// The launcher runs on the host. It re-executes itself as pid 1 of new pid, mount and network
// namespaces (see inside.go); when that process ends, the kernel ends every process and mount of
// the cluster with it.

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// File descriptors that the process inside inherits.
const (
	apiListenerFD = 3 // the API server's port on the host
	lockFD        = 4 // the locked state directory: free again when the last process has gone
)

// up starts a cluster and waits for its end.
func up(args []string) error {
	flags := flag.NewFlagSet("mini up", flag.ContinueOnError)
	dir := flags.String("dir", "", "state directory of the cluster, which holds "+configFile)
	lifeline := flags.Bool("lifeline", false, "when standard input ends, stop the cluster and remove its directory")
	if err := flags.Parse(args); err != nil {
		return err
	}
	runtime.LockOSThread() // the parent-death signal follows the thread that started the child
	lock, err := lockDir(*dir)
	if err != nil {
		return err
	}
	api, err := listenOnHost()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(lock.Name(), "launcher.pid"), fmt.Appendln(nil, os.Getpid()), 0o644); err != nil {
		return err
	}
	cmd := insideCommand(lock.Name(), api, lock)
	stop := make(chan os.Signal, 2)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("new namespaces: %w", err)
	}
	go func() {
		for range stop {
			cmd.Process.Signal(syscall.SIGTERM)
		}
	}()
	orphaned := make(chan struct{})
	if *lifeline {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			close(orphaned)
			stop <- syscall.SIGTERM
		}()
	}
	err = cmd.Wait()
	select {
	case <-orphaned: // nobody is left to look at the logs
		return errors.Join(err, os.RemoveAll(lock.Name()))
	default:
		return err
	}
}

// lockDir marks a state directory as in use, for as long as the returned file is open anywhere.
func lockDir(dir string) (*os.File, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(abs)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, fmt.Errorf("a cluster runs in %s: %w", abs, err)
	}
	return f, nil
}

// listenOnHost opens the API server's port in the host's network namespace.
func listenOnHost() (*os.File, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return l.(*net.TCPListener).File()
}

// insideCommand prepares pid 1 of the cluster. Without root it gets a user namespace as well.
func insideCommand(dir string, api, lock *os.File) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "inside", "--dir", dir)
	cmd.Args[0] = "mini"
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = os.Stdout, os.Stderr, []*os.File{api, lock}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	return cmd
}
