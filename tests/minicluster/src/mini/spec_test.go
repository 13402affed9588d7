package main

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestCommandReplacesEntrypointAndCmd(t *testing.T) {
	image := Image{Entrypoint: []string{"entry"}, Cmd: []string{"cmd"}}
	for _, c := range []struct{ command, args, want []string }{
		{nil, nil, []string{"entry", "cmd"}},
		{nil, []string{"a"}, []string{"entry", "a"}},
		{[]string{"c"}, nil, []string{"c"}},
		{[]string{"c"}, []string{"a"}, []string{"c", "a"}},
	} {
		if got := arguments(image, &cri.ContainerConfig{Command: c.command, Args: c.args}); !slices.Equal(got, c.want) {
			t.Errorf("command %v, args %v: %v", c.command, c.args, got)
		}
	}
}

func TestPodVariablesOverrideTheImages(t *testing.T) {
	image := Image{PathPrepend: "/venv/bin", Env: map[string]string{"A": "image", "B": "image"}}
	got := environment(&Config{Path: "/bin"}, image, &Spec{UID: 1000}, "host", []*cri.KeyValue{{Key: "B", Value: []byte("pod")}})
	if want := []string{"A=image", "B=pod", "HOME=/", "HOSTNAME=host", "PATH=/venv/bin:/bin"}; !slices.Equal(got, want) {
		t.Error(got)
	}
}

func TestDeeperPlacesComeLater(t *testing.T) {
	got := view(&Config{Scratch: []string{"/tmp"}, Hide: []string{"/home/u/secret/", "/a"}, Binds: []string{"/tmp/x"}}, Image{Binds: []string{"/home/u/secret/y"}})
	want := []Place{{"/tmp", ScratchPlace}, {"/a", HiddenPlace}, {"/tmp/x", BoundPlace}, {"/home/u/secret", HiddenPlace}, {"/home/u/secret/y", BoundPlace}}
	if !reflect.DeepEqual(got, want) {
		t.Error(got)
	}
}

func TestCapabilityChanges(t *testing.T) {
	for _, c := range []struct {
		drop, add, want []string
	}{
		{[]string{"ALL"}, nil, nil},
		{[]string{"ALL"}, []string{"CAP_KILL"}, []string{"KILL"}},
		{nil, []string{"ALL"}, capabilityNames},
	} {
		if got := capabilities(&cri.Capability{DropCapabilities: c.drop, AddCapabilities: c.add}); !slices.Equal(got, c.want) {
			t.Errorf("drop %v, add %v: %v", c.drop, c.add, got)
		}
	}
}

func TestAddressesAreUsedInTurn(t *testing.T) {
	pool := newAddressPool("10.0.0.0/29")
	take := func() string {
		ip, err := pool.take()
		check(t, err)
		return ip.String()
	}
	first := take()
	delete(pool.used, netip.MustParseAddr(first))
	if second := take(); first != "10.0.0.2" || second != "10.0.0.3" {
		t.Error(first, second)
	}
	for range 5 {
		take()
	}
	if ip, err := pool.take(); err == nil {
		t.Error("took", ip, "from a full network")
	}
}

func TestLongLinesAreWrittenInParts(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	l, err := openLog(file)
	check(t, err)
	l.copy("stdout", readCloser{strings.NewReader(strings.Repeat("x", 20<<10) + "\nshort\nunfinished")})
	b, err := os.ReadFile(file)
	check(t, err)
	var tags []string
	for _, line := range strings.Split(strings.TrimSpace(string(b)), "\n") {
		tags = append(tags, strings.Fields(line)[2])
	}
	if !slices.Equal(tags, []string{"P", "F", "F", "F"}) {
		t.Error(tags)
	}
}

type readCloser struct{ *strings.Reader }

func (readCloser) Close() error { return nil }

func TestNodeIsSchedulableWhenReadyUntaintedAndWithItsGPUs(t *testing.T) {
	var n node
	if n.missing(0) == nil {
		t.Error("a node without conditions is schedulable")
	}
	n.Status.Conditions = append(n.Status.Conditions, struct{ Type, Status, Message string }{"Ready", "True", ""})
	if err := n.missing(0); err != nil {
		t.Error(err)
	}
	if n.missing(1) == nil {
		t.Error("a node without GPUs offers one")
	}
}
