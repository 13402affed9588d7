package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
)

// configFile is the name of the cluster's configuration in its state directory.
const configFile = "cluster.json"

// Config describes a cluster. The CRI server reads it again for every container.
type Config struct {
	NodeName string   `json:"node_name"`
	GPUs     int      `json:"gpus"`  // advertised as nvidia.com/gpu
	Audit    bool     `json:"audit"` // write logs/audit.log
	Programs Programs `json:"programs"`
	Path     string   `json:"path"`    // PATH of every container
	Scratch  []string `json:"scratch"` // host directories that every container gets empty and writable
	Hide     []string `json:"hide"`    // host directories that every container sees empty
	Binds    []string `json:"binds"`   // host paths shown read-only, also below a scratch or hidden directory
	Images   []Image  `json:"images"`  // the first matching pattern wins
}

// Programs are the paths of what the launcher runs besides itself.
type Programs struct {
	Kube   string `json:"kube"`   // the upstream components
	Addons string `json:"addons"` // service proxy, DNS, volumes and GPUs
}

// Image says how a container with a matching image name runs. Image names are labels: nothing is
// ever downloaded, and every container sees the host's files.
type Image struct {
	Pattern     string            `json:"pattern"`      // as in path.Match
	PathPrepend string            `json:"path_prepend"` // put in front of PATH
	Env         map[string]string `json:"env"`          // defaults, overridden by the pod's own
	Entrypoint  []string          `json:"entrypoint"`   // used when the pod gives no command
	Cmd         []string          `json:"cmd"`          // used when the pod gives neither command nor args
	WorkingDir  string            `json:"working_dir"`  // used when the pod gives none
	Binds       []string          `json:"binds"`        // as Config.Binds, for this image
	UID         int64             `json:"uid"`          // user of the image
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// loadConfig reads the configuration in a state directory.
func loadConfig(dir string) (*Config, error) {
	b, err := os.ReadFile(filepath.Join(dir, configFile))
	if err != nil {
		return nil, err
	}
	c := &Config{NodeName: "mini", Path: defaultPath, Scratch: []string{"/tmp", "/run", "/var/tmp"}}
	if err := json.Unmarshal(b, c); err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	return c, nil
}

// image finds the description of an image by its name.
func (c *Config) image(name string) (Image, bool) {
	for _, i := range c.Images {
		if ok, _ := path.Match(i.Pattern, name); ok {
			return i, true
		}
	}
	return Image{}, false
}
