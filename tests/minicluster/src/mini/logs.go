package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// containerLog writes a container's output in the CRI log format: "time stream F|P text".
type containerLog struct {
	path string // empty for a container without log

	mu sync.Mutex
	f  *os.File
}

func openLog(path string) (*containerLog, error) {
	l := &containerLog{path: path}
	return l, l.reopen()
}

// reopen follows a rotation: the kubelet has renamed the file.
func (l *containerLog) reopen() error {
	l.close()
	if l.path == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.f = f
	return err
}

func (l *containerLog) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		l.f.Close()
		l.f = nil
	}
}

// follow copies both streams to the log; the group is done when both have ended.
func (l *containerLog) follow(stdout, stderr io.ReadCloser) *sync.WaitGroup {
	var streams sync.WaitGroup
	streams.Go(func() { l.copy("stdout", stdout) })
	streams.Go(func() { l.copy("stderr", stderr) })
	return &streams
}

func (l *containerLog) copy(stream string, r io.ReadCloser) {
	defer r.Close()
	lines := bufio.NewReaderSize(r, 16<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			l.write(stream, line, err == io.EOF)
		}
		if err != nil && err != bufio.ErrBufferFull {
			return
		}
	}
}

// write adds one line, or the part of a long one that fits into the reader's buffer.
func (l *containerLog) write(stream string, line []byte, last bool) {
	tag := "P"
	if n := len(line) - 1; line[n] == '\n' {
		tag, line = "F", line[:n]
	} else if last {
		tag = "F"
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil {
		fmt.Fprintf(l.f, "%s %s %s %s\n", time.Now().UTC().Format(time.RFC3339Nano), stream, tag, line)
	}
}
