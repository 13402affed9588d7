package main

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// bind shows a host file or directory, with everything mounted below it, at another place.
func bind(from, to string) error {
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := makeMountPoint(to, st.IsDir()); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND|unix.MS_REC, "")
}

// bindReadOnly is bind for readers.
func bindReadOnly(from, to string) error {
	if err := bind(from, to); err != nil {
		return err
	}
	return makeReadOnly(to)
}

func makeMountPoint(path string, dir bool) error {
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, nil, 0o644)
}

// makeReadOnly makes a mount and all mounts below it read-only; kernels before 5.12 leave the latter
// as they are.
func makeReadOnly(path string) error {
	err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if err == unix.ENOSYS {
		return remountReadOnly(path)
	}
	return err
}

// remountReadOnly makes one mount read-only, keeping the flags that a user namespace may have locked.
func remountReadOnly(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	kept := uintptr(st.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC)
	return unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY|kept, "")
}

func tmpfs(path, options string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return unix.Mount("tmpfs", path, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}
