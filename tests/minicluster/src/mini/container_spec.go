package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Spec is all that the process in a new container has to know.
type Spec struct {
	Scratch      string // empty directory for the private file system
	Hostname     string // empty for pods on the host network
	Args         []string
	Env          []string
	Cwd          string
	View         []Place
	Volumes      []Volume
	ResolvConf   string
	UID, GID     int
	Groups       []int
	Privileged   bool
	ReadOnlyRoot bool
	NoNewPrivs   bool
	NewPID       bool
	Capabilities []string // that a privileged program could still gain (unless Privileged)
}

// Place is a host path that a container sees in a special way. Of two nested ones the deeper wins.
type Place struct {
	Path string
	Kind PlaceKind
}

// PlaceKind is the way in which a container sees a place.
type PlaceKind string

const (
	ScratchPlace PlaceKind = "scratch" // empty and writable by everybody, like /tmp
	HiddenPlace  PlaceKind = "hidden"  // empty
	BoundPlace   PlaceKind = "bound"   // as on the host, read-only
)

// Volume is a mount that the pod asked for.
type Volume struct {
	Source, Target string
	ReadOnly       bool
}

// newSpec combines what the image and the pod say about a container.
func newSpec(config *Config, image Image, pod *cri.PodSandboxConfig, c *cri.ContainerConfig) (*Spec, error) {
	sc := c.GetLinux().GetSecurityContext()
	s := &Spec{
		Cwd: firstOf(c.WorkingDir, image.WorkingDir, "/"), View: view(config, image), ResolvConf: resolvConf(pod.DnsConfig),
		Privileged: sc.GetPrivileged(), ReadOnlyRoot: sc.GetReadonlyRootfs(), NoNewPrivs: sc.GetNoNewPrivs(),
		NewPID: sc.GetNamespaceOptions().GetPid() != cri.NamespaceMode_NODE, Capabilities: capabilities(sc.GetCapabilities()),
	}
	if sc.GetNamespaceOptions().GetNetwork() != cri.NamespaceMode_NODE {
		s.Hostname = pod.Hostname
	}
	if s.Args = arguments(image, c); len(s.Args) == 0 {
		return nil, status.Errorf(codes.InvalidArgument, "no command specified for image %q", imageName(c.Image))
	}
	s.setUser(image, sc)
	s.Env = environment(config, image, s, pod.Hostname, c.Envs)
	var err error
	s.Volumes, err = volumes(c.Mounts)
	return s, err
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

// arguments follows the usual rule: a pod's command replaces the image's entrypoint and cmd, a
// pod's args replace its cmd.
func arguments(image Image, c *cri.ContainerConfig) []string {
	switch {
	case len(c.Command) > 0:
		return slices.Concat(c.Command, c.Args)
	case len(c.Args) > 0:
		return slices.Concat(image.Entrypoint, c.Args)
	default:
		return slices.Concat(image.Entrypoint, image.Cmd)
	}
}

func (s *Spec) setUser(image Image, sc *cri.LinuxContainerSecurityContext) {
	s.UID = int(image.UID)
	if sc.GetRunAsUser() != nil {
		s.UID = int(sc.RunAsUser.Value)
	}
	if sc.GetRunAsGroup() != nil {
		s.GID = int(sc.RunAsGroup.Value)
	}
	for _, g := range sc.GetSupplementalGroups() {
		s.Groups = append(s.Groups, int(g))
	}
}

// environment lets the pod's variables override the image's, and those the defaults of an engine.
func environment(config *Config, image Image, s *Spec, hostname string, pod []*cri.KeyValue) []string {
	env := map[string]string{"PATH": config.Path, "HOME": "/", "HOSTNAME": hostname}
	if s.UID == 0 {
		env["HOME"] = "/root"
	}
	if image.PathPrepend != "" {
		env["PATH"] = image.PathPrepend + ":" + config.Path
	}
	maps.Copy(env, image.Env)
	for _, e := range pod {
		env[e.Key] = string(e.Value)
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

// view lists the special places, shallow ones first, so that deeper ones are mounted over them.
func view(config *Config, image Image) []Place {
	var places []Place
	add := func(kind PlaceKind, paths []string) {
		for _, p := range paths {
			places = append(places, Place{filepath.Clean(p), kind})
		}
	}
	add(ScratchPlace, config.Scratch)
	add(BoundPlace, config.Binds)
	add(BoundPlace, image.Binds)
	add(HiddenPlace, config.Hide)
	slices.SortStableFunc(places, func(a, b Place) int { return strings.Count(a.Path, "/") - strings.Count(b.Path, "/") })
	return places
}

// volumes resolves the mounts that the kubelet asks for. A missing host path becomes a directory.
func volumes(mounts []*cri.Mount) ([]Volume, error) {
	var list []Volume
	for _, m := range mounts {
		if m.GetImage().GetImage() != "" {
			return nil, status.Error(codes.Unimplemented, "image volumes are not supported")
		}
		source, err := filepath.EvalSymlinks(m.HostPath)
		if os.IsNotExist(err) {
			source, err = m.HostPath, os.MkdirAll(m.HostPath, 0o755)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, Volume{source, m.ContainerPath, m.Readonly})
	}
	return list, nil
}

func resolvConf(dns *cri.DNSConfig) string {
	var b strings.Builder
	for _, server := range dns.GetServers() {
		b.WriteString("nameserver " + server + "\n")
	}
	if b.Len() == 0 {
		return ""
	}
	if searches := dns.GetSearches(); len(searches) > 0 {
		b.WriteString("search " + strings.Join(searches, " ") + "\n")
	}
	if options := dns.GetOptions(); len(options) > 0 {
		b.WriteString("options " + strings.Join(options, " ") + "\n")
	}
	return b.String()
}

// capabilities applies a pod's changes to the set that container engines grant by default.
func capabilities(change *cri.Capability) []string {
	keep := map[string]bool{}
	for _, c := range defaultCapabilities {
		keep[c] = true
	}
	for _, c := range change.GetDropCapabilities() {
		if c == "ALL" {
			clear(keep)
		}
		delete(keep, strings.TrimPrefix(c, "CAP_"))
	}
	for _, c := range change.GetAddCapabilities() {
		keep[strings.TrimPrefix(c, "CAP_")] = true
	}
	if keep["ALL"] {
		return capabilityNames
	}
	return slices.Sorted(maps.Keys(keep))
}
