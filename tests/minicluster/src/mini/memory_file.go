package main

import (
	"encoding/json"
	"os"

	"golang.org/x/sys/unix"
)

// memoryFile holds a value as JSON for a child process that inherits it.
func memoryFile(value any) (*os.File, error) {
	fd, err := unix.MemfdCreate("spec", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "spec")
	if err := json.NewEncoder(f).Encode(value); err != nil {
		f.Close()
		return nil, err
	}
	_, err = f.Seek(0, 0)
	return f, err
}

// readMemoryFile decodes the file that a process inherited as a descriptor.
func readMemoryFile(fd uintptr, into any) error {
	f := os.NewFile(fd, "spec")
	defer f.Close()
	return json.NewDecoder(f).Decode(into)
}
