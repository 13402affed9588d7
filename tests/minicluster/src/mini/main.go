// mini runs a one-machine Kubernetes cluster without a container engine: it launches the upstream
// components in namespaces of their own and serves the kubelet's container runtime interface with
// plain processes.
package main

import (
	"flag"
	"log"
	"os"
)

// commands are the program's entry points. The ones marked internal are run by mini itself.
var commands = map[string]func(args []string) error{
	"up":             up,
	"inside":         inside, // internal: pid 1 of the cluster's namespaces
	"cri":            serveCRI,
	"kill-container": killContainer,
	"fake-chown":     fakeChown,     // internal: runs a program for which chown always succeeds
	"container-init": containerInit, // internal: first process of a container
	"container-exec": containerExec, // internal: another process in a running container
}

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		log.Fatal("usage: mini up|cri|kill-container [flags]")
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		log.Fatal(err)
	}
}

// dirFlag parses the one flag that most commands take.
func dirFlag(command string, args []string) (string, error) {
	flags := flag.NewFlagSet("mini "+command, flag.ContinueOnError)
	dir := flags.String("dir", "", "state directory of the cluster, which holds "+configFile)
	err := flags.Parse(args)
	return *dir, err
}
