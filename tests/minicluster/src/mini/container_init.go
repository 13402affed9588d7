package main

// The first process in a container's namespaces. It builds the container's file system, drops
// privileges and executes the program, which so becomes pid 1 of the container.

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// File descriptors that a container's first process inherits.
const (
	specFD   = 3
	statusFD = 4 // closed by a successful exec, otherwise gets the reason
)

// containerInit only returns by ending the process.
func containerInit([]string) error {
	runtime.LockOSThread()
	unix.CloseOnExec(statusFD)
	if err := becomeContainer(); err != nil {
		fmt.Fprint(os.NewFile(statusFD, "status"), err)
	}
	os.Exit(128)
	return nil
}

func becomeContainer() error {
	var spec Spec
	if err := readMemoryFile(specFD, &spec); err != nil {
		return fmt.Errorf("read spec: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	if spec.Hostname != "" {
		if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
			return fmt.Errorf("set host name: %w", err)
		}
	}
	root := &containerRoot{spec: &spec}
	if err := root.build(); err != nil {
		return err
	}
	if err := dropPrivileges(&spec); err != nil {
		return err
	}
	unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0) // the change of user has cleared it
	return execute(&spec)
}

func execute(spec *Spec) error {
	setEnvironment(spec.Env)
	program, err := exec.LookPath(spec.Args[0])
	if err != nil {
		return err
	}
	return fmt.Errorf("exec %s: %w", program, syscall.Exec(program, spec.Args, os.Environ()))
}

func setEnvironment(env []string) {
	os.Clearenv()
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		os.Setenv(name, value)
	}
}

// oldRoot is where the node's file system is while the container's is being built.
const oldRoot = "/.oldroot"

// containerRoot is the file system of a container: the host's top-level directories as overlays
// whose changes go to a tmpfs, the special places of the view, and the pod's volumes.
type containerRoot struct {
	spec     *Spec
	overlays []string
}

func (r *containerRoot) build() error {
	steps := []func() error{
		r.layHostDirectories, r.mountProc, r.mountSysAndDev, r.applyView, r.writeIdentity, r.mountVolumes, r.showCovered,
		r.detachNode, r.seal, r.enterWorkingDir,
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// layHostDirectories makes the root and moves into it. There is one overlay for each top-level
// directory, because a user namespace refuses one of "/": the mounts below it are locked.
func (r *containerRoot) layHostDirectories() error {
	if err := tmpfs(r.spec.Scratch, "mode=0755"); err != nil {
		return fmt.Errorf("scratch tmpfs: %w", err)
	}
	root := r.spec.Scratch + "/root"
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind root: %w", err)
	}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := r.layEntry(root, e); err != nil {
			return fmt.Errorf("root entry /%s: %w", e.Name(), err)
		}
	}
	return moveInto(root)
}

func (r *containerRoot) layEntry(root string, e os.DirEntry) error {
	path := "/" + e.Name()
	switch {
	case slices.Contains([]string{"/proc", "/sys", "/dev"}, path) || slices.Contains(r.spec.View, Place{path, ScratchPlace}):
		return os.Mkdir(root+path, 0o755)
	case e.Type()&os.ModeSymlink != 0:
		target, err := os.Readlink(path)
		return errors.Join(err, os.Symlink(target, root+path))
	case e.IsDir():
		return r.layDirectory(root, path)
	}
	return nil
}

// layDirectory shows a host directory as an overlay or, where that is refused, read-only.
func (r *containerRoot) layDirectory(root, path string) error {
	upper, work := r.spec.Scratch+"/upper"+path, r.spec.Scratch+"/work"+path
	if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755), os.Mkdir(root+path, 0o755)); err != nil {
		return err
	}
	if st, err := os.Stat(path); err == nil {
		os.Chmod(upper, st.Mode()) // the upper layer's mode is the one that counts
	}
	options := "lowerdir=" + path + ",upperdir=" + upper + ",workdir=" + work
	for _, o := range []string{options, options + ",userxattr"} {
		if unix.Mount("overlay", root+path, "overlay", 0, o) == nil {
			r.overlays = append(r.overlays, path)
			return nil
		}
	}
	return bindReadOnly(path, root+path)
}

func moveInto(root string) error {
	if err := errors.Join(os.Mkdir(root+oldRoot, 0o700), os.Chdir(root)); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."+oldRoot); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	return os.Chdir("/")
}

func (r *containerRoot) mountProc() error {
	if !r.spec.NewPID {
		return bind(oldRoot+"/proc", "/proc")
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if r.spec.Privileged {
		return nil
	}
	for _, p := range []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus"} {
		if _, err := os.Stat(p); err != nil {
			continue
		}
		if err := bindReadOnly(p, p); err != nil {
			return fmt.Errorf("read-only %s: %w", p, err)
		}
	}
	return nil
}

func (r *containerRoot) mountSysAndDev() error {
	if r.spec.Privileged {
		return errors.Join(bind(oldRoot+"/dev", "/dev"), bind(oldRoot+"/sys", "/sys"))
	}
	if err := errors.Join(bindReadOnly(oldRoot+"/sys", "/sys"), tmpfs("/dev", "mode=0755")); err != nil {
		return err
	}
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := bind(oldRoot+"/dev/"+n, "/dev/"+n); err != nil {
			return fmt.Errorf("/dev/%s: %w", n, err)
		}
	}
	for link, target := range map[string]string{"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2", "ptmx": "pts/ptmx"} {
		if err := os.Symlink(target, "/dev/"+link); err != nil {
			return err
		}
	}
	if err := errors.Join(tmpfs("/dev/shm", "mode=1777,size=64m"), os.Mkdir("/dev/pts", 0o755)); err != nil {
		return err
	}
	return unix.Mount("devpts", "/dev/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620")
}

func (r *containerRoot) applyView() error {
	for _, p := range r.spec.View {
		if err := p.mount(); err != nil {
			return fmt.Errorf("%s place %s: %w", p.Kind, p.Path, err)
		}
	}
	return nil
}

func (p Place) mount() error {
	switch p.Kind {
	case ScratchPlace:
		return tmpfs(p.Path, "mode=1777")
	case BoundPlace:
		makeTraversable(filepath.Dir(p.Path))
		if err := bindReadOnly(oldRoot+p.Path, p.Path); err != nil {
			return err
		}
		return nil
	}
	if _, err := os.Stat(p.Path); os.IsNotExist(err) {
		return nil // what does not exist needs no hiding
	}
	return tmpfs(p.Path, "mode=0755")
}

// makeTraversable lets every user of the container pass a directory and its parents, as in an
// image. The changes stay in the container's layer; where there is none they are not possible.
func makeTraversable(dir string) {
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if st, err := os.Stat(dir); err == nil && st.Mode()&0o111 != 0o111 {
			_ = os.Chmod(dir, st.Mode()|0o111)
		}
	}
}

func (r *containerRoot) writeIdentity() error {
	if r.spec.ResolvConf != "" {
		if err := replaceFile("/etc/resolv.conf", r.spec.ResolvConf); err != nil {
			return err
		}
	}
	if r.spec.Hostname != "" {
		return replaceFile("/etc/hostname", r.spec.Hostname+"\n")
	}
	return nil
}

// replaceFile writes a new file in the container's layer or, where there is none, covers the
// host's file.
func replaceFile(path, content string) error {
	os.Remove(path)
	if os.WriteFile(path, []byte(content), 0o644) == nil {
		return nil
	}
	staged := "/." + filepath.Base(path)
	if err := os.WriteFile(staged, []byte(content), 0o644); err != nil {
		return err
	}
	defer os.Remove(staged)
	return bind(staged, path)
}

func (r *containerRoot) mountVolumes() error {
	for _, v := range r.spec.Volumes {
		mount := bind
		if v.ReadOnly {
			mount = bindReadOnly
		}
		if err := mount(oldRoot+v.Source, v.Target); err != nil {
			return fmt.Errorf("mount %s on %s: %w", v.Source, v.Target, err)
		}
	}
	return nil
}

// showCovered binds again what a volume covers: a program of an image may lie below /tmp, where a pod mounts a directory of its own.
func (r *containerRoot) showCovered() error {
	for _, p := range r.spec.View {
		covered := slices.ContainsFunc(r.spec.Volumes, func(v Volume) bool { return strings.HasPrefix(p.Path, filepath.Clean(v.Target)+"/") })
		if p.Kind == BoundPlace && covered {
			if err := p.mount(); err != nil {
				return fmt.Errorf("%s place %s: %w", p.Kind, p.Path, err)
			}
		}
	}
	return nil
}

func (r *containerRoot) detachNode() error {
	if err := unix.Unmount(oldRoot, unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach the node's file system: %w", err)
	}
	return os.Remove(oldRoot)
}

// seal makes the root read-only if the pod wants that; its volumes stay as they are.
func (r *containerRoot) seal() error {
	if err := os.MkdirAll(r.spec.Cwd, 0o755); err != nil && r.spec.Cwd != "/" {
		return err
	}
	if !r.spec.ReadOnlyRoot {
		return nil
	}
	for _, path := range append(r.ownMounts(), "/") {
		if err := remountReadOnly(path); err != nil {
			return fmt.Errorf("read-only %s: %w", path, err)
		}
	}
	return nil
}

// ownMounts are the mounts of the root that no volume covers.
func (r *containerRoot) ownMounts() []string {
	mounts := slices.Clone(r.overlays)
	for _, p := range r.spec.View {
		if _, err := os.Stat(p.Path); err == nil && p.Kind == ScratchPlace {
			mounts = append(mounts, p.Path)
		}
	}
	return slices.DeleteFunc(mounts, func(path string) bool {
		return slices.ContainsFunc(r.spec.Volumes, func(v Volume) bool { return filepath.Clean(v.Target) == path })
	})
}

func (r *containerRoot) enterWorkingDir() error {
	if err := os.Chdir(r.spec.Cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	return nil
}
