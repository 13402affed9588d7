package main

import "golang.org/x/sys/unix"

// chownCalls are the system calls that change a file's owner.
var chownCalls = []uint32{unix.SYS_FCHOWN, unix.SYS_FCHOWNAT}
