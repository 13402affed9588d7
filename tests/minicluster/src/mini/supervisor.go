package main

import (
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// component is one program of the cluster.
type component struct {
	name string
	argv []string
}

// supervisor runs components and starts again those that end before the cluster does.
type supervisor struct {
	dir string

	mu    sync.Mutex
	procs []*process // in the order of their start
	down  bool
}

type process struct {
	component
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

func newSupervisor(dir string) *supervisor { return &supervisor{dir: dir} }

func (s *supervisor) start(components ...component) {
	for _, c := range components {
		p := &process{component: c}
		s.mu.Lock()
		s.procs = append(s.procs, p)
		s.mu.Unlock()
		s.launch(p)
	}
}

// launch runs p and watches it. A program that cannot be run at all ends the cluster.
func (s *supervisor) launch(p *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return
	}
	output, err := os.OpenFile(filepath.Join(s.dir, "logs", p.name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	defer output.Close()
	p.cmd, p.done = exec.Command(p.argv[0], p.argv[1:]...), make(chan struct{})
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir = output, output, s.dir
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		log.Fatalf("%s: %v", p.name, err)
	}
	go s.watch(p, p.cmd, p.done)
}

func (s *supervisor) watch(p *process, cmd *exec.Cmd, done chan struct{}) {
	err := cmd.Wait()
	close(done)
	if !s.stopping() {
		log.Printf("%s ended (%v), starting it again", p.name, err)
		time.Sleep(time.Second)
		s.launch(p)
	}
}

func (s *supervisor) stopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.down
}

// stop ends the components in reverse order of their start.
func (s *supervisor) stop() {
	s.mu.Lock()
	s.down = true
	procs := s.procs
	s.mu.Unlock()
	for i := len(procs) - 1; i >= 0; i-- {
		procs[i].end(5 * time.Second)
	}
}

func (p *process) end(grace time.Duration) {
	p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(grace):
		log.Printf("%s did not end in %s, killing it", p.name, grace)
		p.cmd.Process.Kill()
	}
}
