package main

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pod is one sandbox on a CRI server of the test's own.
type pod struct {
	t       *testing.T
	dir     string
	runtime cri.RuntimeServiceClient
	images  cri.ImageServiceClient
	id      string
	config  *cri.PodSandboxConfig
}

// newPod serves the CRI with one image, "tool:*", whose special places are below the state directory:
// hidden/ is seen empty, but for hidden/shown.
func newPod(t *testing.T) *pod {
	dir := t.TempDir()
	for _, d := range []string{"hidden/shown", "logs", "containers"} {
		check(t, os.MkdirAll(filepath.Join(dir, d), 0o755))
	}
	check(t, os.WriteFile(filepath.Join(dir, "hidden", "secret"), []byte("secret"), 0o644))
	check(t, os.WriteFile(filepath.Join(dir, "hidden", "shown", "file"), []byte("public"), 0o644))
	check(t, writeJSON(filepath.Join(dir, configFile), Config{
		Path: defaultPath, Scratch: []string{"/run"}, Hide: []string{dir + "/hidden"}, Binds: []string{dir + "/hidden/shown"},
		Images: []Image{{Pattern: "tool:*", Entrypoint: []string{"/bin/sh", "-c"}, Cmd: []string{"echo from image"}, Env: map[string]string{"GREETING": "hello"}}},
	}))
	go serveCRI([]string{"--dir", dir})
	conn, err := grpc.NewClient("unix://"+filepath.Join(dir, criSocket), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(t, err)
	t.Cleanup(func() { conn.Close() })
	p := &pod{t: t, dir: dir, runtime: cri.NewRuntimeServiceClient(conn), images: cri.NewImageServiceClient(conn)}
	p.config = &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{Name: "p", Namespace: "default", Uid: "u"}, Hostname: "pod-host", LogDirectory: dir + "/logs"}
	sandbox, err := p.runtime.RunPodSandbox(t.Context(), &cri.RunPodSandboxRequest{Config: p.config}, grpc.WaitForReady(true))
	check(t, err)
	p.id = sandbox.PodSandboxId
	t.Cleanup(func() {
		p.runtime.RemovePodSandbox(context.Background(), &cri.RemovePodSandboxRequest{PodSandboxId: p.id})
	})
	return p
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start creates and starts a container whose name is also that of its log.
func (p *pod) start(name string, change func(*cri.ContainerConfig)) (string, error) {
	config := &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: name}, Image: &cri.ImageSpec{Image: "tool:1"}, LogPath: name + ".log",
		Labels: map[string]string{"io.kubernetes.container.name": name},
	}
	change(config)
	c, err := p.runtime.CreateContainer(p.t.Context(), &cri.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
	if err != nil {
		return "", err
	}
	_, err = p.runtime.StartContainer(p.t.Context(), &cri.StartContainerRequest{ContainerId: c.ContainerId})
	return c.ContainerId, err
}

// run starts a shell script that must start.
func (p *pod) run(name, script string, volumes ...*cri.Mount) string {
	p.t.Helper()
	id, err := p.start(name, func(c *cri.ContainerConfig) { c.Args, c.Mounts = []string{script}, volumes })
	check(p.t, err)
	return id
}

func (p *pod) status(id string) *cri.ContainerStatus {
	p.t.Helper()
	r, err := p.runtime.ContainerStatus(p.t.Context(), &cri.ContainerStatusRequest{ContainerId: id})
	check(p.t, err)
	return r.Status
}

// exitCode waits for a container's end.
func (p *pod) exitCode(id string) int32 {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if s := p.status(id); s.State == cri.ContainerState_CONTAINER_EXITED {
			return s.ExitCode
		}
	}
	p.t.Fatal("container did not end")
	return 0
}

// output runs a script to its end and returns what it wrote to stdout.
func (p *pod) output(script string, volumes ...*cri.Mount) string {
	p.t.Helper()
	name := newID()[:8]
	p.exitCode(p.run(name, script, volumes...))
	var lines []string
	for _, line := range strings.Split(p.log(name), "\n") {
		if _, text, ok := strings.Cut(line, " stdout F "); ok {
			lines = append(lines, text)
		}
	}
	return strings.Join(lines, "\n")
}

func (p *pod) log(name string) string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.dir, "logs", name+".log"))
	check(p.t, err)
	return string(b)
}

func TestExitCodeAndOutputAreRecorded(t *testing.T) {
	p := newPod(t)
	id := p.run("a", "echo $GREETING; echo oops >&2; exit 7")
	if code := p.exitCode(id); code != 7 {
		t.Errorf("exit code %d", code)
	}
	if s := p.status(id); s.Reason != "Error" || s.FinishedAt < s.StartedAt {
		t.Errorf("status %v", s)
	}
	for _, wanted := range []string{" stdout F hello\n", " stderr F oops\n"} {
		if !strings.Contains(p.log("a"), wanted) {
			t.Errorf("log lacks %q", wanted)
		}
	}
}

func TestProgramIsPidOneOnItsOwnHost(t *testing.T) {
	if got := newPod(t).output("echo $$ $(hostname) $(cat /etc/hostname)"); got != "1 pod-host pod-host" {
		t.Error(got)
	}
}

func TestProgramThatDoesNotExistIsAStartError(t *testing.T) {
	p := newPod(t)
	id, err := p.start("a", func(c *cri.ContainerConfig) { c.Command = []string{"/no/such/program"} })
	if err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Fatal(err)
	}
	if s := p.status(id); s.ExitCode != 128 || s.Reason != "StartError" {
		t.Error(s)
	}
}

func TestUnknownImageIsRefused(t *testing.T) {
	p := newPod(t)
	unknown := &cri.ImageSpec{Image: "unknown:1"}
	if s, err := p.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: unknown}); err != nil || s.Image != nil {
		t.Error(s, err)
	}
	if _, err := p.images.PullImage(t.Context(), &cri.PullImageRequest{Image: unknown}); err == nil {
		t.Error("pulled an unknown image")
	}
	known, err := p.images.ImageStatus(t.Context(), &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: "tool:2"}})
	if err != nil || known.Image == nil {
		t.Error(known, err)
	}
}

func TestStopSendsTheSignalFirst(t *testing.T) {
	p := newPod(t)
	id := p.run("a", "trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done")
	p.waitForLog("a", "ready")
	_, err := p.runtime.StopContainer(t.Context(), &cri.StopContainerRequest{ContainerId: id, Timeout: 5})
	check(t, err)
	if code := p.exitCode(id); code != 3 {
		t.Errorf("exit code %d", code)
	}
}

func (p *pod) waitForLog(name, text string) {
	p.t.Helper()
	for end := time.Now().Add(5 * time.Second); !strings.Contains(p.log(name), text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("log %s never said %q", name, text)
		}
	}
}

func TestKillContainerFindsItByName(t *testing.T) {
	p := newPod(t)
	id := p.run("victim", "sleep 60")
	check(t, killByLabels(t.Context(), p.runtime, map[string]string{"io.kubernetes.container.name": "victim"}))
	if code := p.exitCode(id); code != 137 {
		t.Errorf("exit code %d", code)
	}
	if err := killByLabels(t.Context(), p.runtime, map[string]string{"io.kubernetes.container.name": "victim"}); err == nil {
		t.Error("killed a dead container")
	}
}

func TestExecJoinsTheContainer(t *testing.T) {
	p := newPod(t)
	id := p.run("a", "mkdir /made-by-main; sleep 60")
	script := "ls -d /made-by-main; hostname; echo $GREETING; exit 5"
	r, err := p.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: id, Cmd: []string{"sh", "-c", script}, Timeout: 5})
	check(t, err)
	if r.ExitCode != 5 || string(r.Stdout) != "/made-by-main\npod-host\nhello\n" {
		t.Errorf("%d %q %q", r.ExitCode, r.Stdout, r.Stderr)
	}
}

func TestExecOfMissingProgramGives127(t *testing.T) {
	p := newPod(t)
	r, err := p.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: p.run("a", "sleep 60"), Cmd: []string{"no-such-program"}})
	if err != nil || r.ExitCode != 127 {
		t.Error(r, err)
	}
}

func TestExecTimesOut(t *testing.T) {
	p := newPod(t)
	began := time.Now()
	_, err := p.runtime.ExecSync(t.Context(), &cri.ExecSyncRequest{ContainerId: p.run("a", "sleep 60"), Cmd: []string{"sleep", "20"}, Timeout: 1})
	if err == nil || time.Since(began) > 3*time.Second {
		t.Errorf("%v after %s", err, time.Since(began))
	}
}

func TestHiddenPlaceIsEmptyButForDeeperBinds(t *testing.T) {
	p := newPod(t)
	script := "ls " + p.dir + "/hidden; cat " + p.dir + "/hidden/shown/file; echo; touch " + p.dir + "/hidden/shown/new || echo refused"
	if got := p.output(script); got != "shown\npublic\nrefused" {
		t.Error(got)
	}
}

func TestVolumesBelowAHiddenPlaceWork(t *testing.T) {
	p := newPod(t)
	source := filepath.Join(p.dir, "hidden", "volume")
	volume := &cri.Mount{HostPath: source, ContainerPath: "/data"}
	same := &cri.Mount{HostPath: source, ContainerPath: source, Readonly: true}
	got := p.output("echo content > /data/file; cat "+source+"/file; ls "+p.dir+"/hidden; touch "+source+"/x || echo refused", volume, same)
	if got != "content\nshown\nvolume\nrefused" {
		t.Error(got)
	}
	if b, err := os.ReadFile(filepath.Join(source, "file")); err != nil || string(b) != "content\n" {
		t.Errorf("%q %v", b, err)
	}
}

func TestBindsAreSeenBelowAVolumeThatCoversThem(t *testing.T) {
	p := newPod(t)
	volume := &cri.Mount{HostPath: filepath.Join(t.TempDir(), "volume"), ContainerPath: p.dir + "/hidden"}
	if out := p.output("cat "+p.dir+"/hidden/shown/file; touch "+p.dir+"/hidden/x && echo written", volume); out != "publicwritten" {
		t.Error(out)
	}
}

func TestChangesOfHostFilesStayInTheContainer(t *testing.T) {
	p := newPod(t)
	if got := p.output("touch /usr/local/made-by-test /made-by-test && ls -d /usr/local/made-by-test /made-by-test"); !strings.Contains(got, "/usr/local/made-by-test") {
		t.Error(got)
	}
	for _, f := range []string{"/made-by-test", "/usr/local/made-by-test"} {
		if _, err := os.Stat(f); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s exists on the host", f)
		}
	}
}

func TestReadOnlyRootLeavesVolumesWritable(t *testing.T) {
	p := newPod(t)
	id, err := p.start("a", func(c *cri.ContainerConfig) {
		c.Args = []string{"touch /x /usr/x /run/x; touch /data/x && echo written"}
		c.Mounts = []*cri.Mount{{HostPath: filepath.Join(p.dir, "data"), ContainerPath: "/data"}}
		c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{ReadonlyRootfs: true}}
	})
	check(t, err)
	p.exitCode(id)
	if log := p.log("a"); strings.Count(log, "Read-only file system") != 3 || !strings.Contains(log, "written") {
		t.Error(log)
	}
}

func TestDroppedCapabilitiesAreGone(t *testing.T) {
	p := newPod(t)
	id, err := p.start("a", func(c *cri.ContainerConfig) {
		c.Args = []string{"grep -E 'CapBnd|NoNewPrivs' /proc/self/status"}
		c.Linux = &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{
			NoNewPrivs: true, Capabilities: &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"KILL"}},
		}}
	})
	check(t, err)
	p.exitCode(id)
	for _, wanted := range []string{"CapBnd:\t0000000000000020", "NoNewPrivs:\t1"} {
		if !strings.Contains(p.log("a"), wanted) {
			t.Errorf("%q lacks %q", p.log("a"), wanted)
		}
	}
}

func TestPodAddressIsOnLoopbackUntilThePodStops(t *testing.T) {
	p := newPod(t)
	s, err := p.runtime.PodSandboxStatus(t.Context(), &cri.PodSandboxStatusRequest{PodSandboxId: p.id})
	check(t, err)
	if ip := s.Status.Network.Ip; !slices.Contains(loopbackAddresses(t), ip+"/32") {
		t.Errorf("%s is not among %v", ip, loopbackAddresses(t))
	}
	for range 2 {
		_, err = p.runtime.StopPodSandbox(t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: p.id})
		check(t, err)
	}
	if ip := s.Status.Network.Ip; slices.Contains(loopbackAddresses(t), ip+"/32") {
		t.Errorf("%s is still there", ip)
	}
}

func loopbackAddresses(t *testing.T) []string {
	lo, err := net.InterfaceByName("lo")
	check(t, err)
	addresses, err := lo.Addrs()
	check(t, err)
	var list []string
	for _, a := range addresses {
		list = append(list, a.String())
	}
	return list
}
