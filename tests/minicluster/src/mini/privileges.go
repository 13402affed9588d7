package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// defaultCapabilities is the set that container engines grant by default.
var defaultCapabilities = strings.Fields(`CHOWN DAC_OVERRIDE FSETID FOWNER MKNOD NET_RAW SETGID SETUID SETFCAP SETPCAP
	NET_BIND_SERVICE SYS_CHROOT KILL AUDIT_WRITE`)

// capabilityNames holds each capability at the index of its number (capabilities(7)).
var capabilityNames = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// hasOneUser tells whether this user namespace was made by an ordinary user: it knows no other user,
// so that every container runs as that one, whatever the pod asks for.
func hasOneUser() bool {
	b, err := os.ReadFile("/proc/self/uid_map")
	fields := strings.Fields(string(b))
	return err == nil && len(fields) == 3 && fields[2] == "1"
}

// dropPrivileges gives this process the user and the limits of a container.
func dropPrivileges(spec *Spec) error {
	if err := limitThread(spec); err != nil {
		return err
	}
	if hasOneUser() {
		return nil
	}
	if err := syscall.Setgroups(spec.Groups); err != nil {
		return fmt.Errorf("setgroups: %w", err)
	}
	if err := syscall.Setgid(spec.GID); err != nil {
		return fmt.Errorf("setgid %d: %w", spec.GID, err)
	}
	if err := syscall.Setuid(spec.UID); err != nil {
		return fmt.Errorf("setuid %d: %w", spec.UID, err)
	}
	return nil
}

// limitThread takes away what the programs that this thread executes must never gain.
func limitThread(spec *Spec) error {
	if !spec.Privileged {
		for number, name := range capabilityNames {
			if !slices.Contains(spec.Capabilities, name) {
				// A kernel that does not know the capability cannot grant it either.
				_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(number), 0, 0, 0)
			}
		}
	}
	if !spec.NoNewPrivs {
		return nil
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	return nil
}
