package main

// The node's own view of the machine: the components write to a few fixed host paths and sysctls,
// and get private copies of them.

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// mirrored are the host directories in which the components create entries, with those entries
// that must not be the host's own.
var mirrored = map[string][]string{
	"/var/log": {"containers", "pods"},
	"/var/lib": {"kubelet"},
	"/run":     {"mount"},
}

// sysctls are the values that the kubelet sets unless they already read so.
var sysctls = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// prepareNodeView mounts the private copies; staging is an unused path for them.
func prepareNodeView(staging string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	for dir, private := range mirrored {
		if err := mirror(dir, private, filepath.Join(staging, dir)); err != nil {
			return fmt.Errorf("mirror %s: %w", dir, err)
		}
	}
	return fakeSysctls(filepath.Join(staging, "sysctl"))
}

// mirror covers a directory with a tmpfs that shows the same entries, so that new ones stay in the
// cluster. Unlike an overlay, it works in a user namespace whatever is mounted below the directory.
func mirror(dir string, private []string, staging string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	if err := tmpfs(staging, "mode=0755"); err != nil {
		return err
	}
	for _, e := range entries {
		if slices.Contains(private, e.Name()) {
			continue
		}
		// An entry that cannot be shown, like another user's FUSE mount, is left out.
		_ = mirrorEntry(e, filepath.Join(dir, e.Name()), filepath.Join(staging, e.Name()))
	}
	return unix.Mount(staging, dir, "", unix.MS_BIND|unix.MS_REC, "")
}

func mirrorEntry(e os.DirEntry, from, to string) error {
	if e.Type()&os.ModeSymlink == 0 {
		return bind(from, to)
	}
	target, err := os.Readlink(from)
	if err != nil {
		return err
	}
	return os.Symlink(target, to)
}

func fakeSysctls(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for name, value := range sysctls {
		file := filepath.Join(dir, strings.ReplaceAll(name, "/", "."))
		if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(file, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("sysctl %s: %w", name, err)
		}
	}
	return nil
}
