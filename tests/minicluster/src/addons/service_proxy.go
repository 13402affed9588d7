package main

// The service proxy listens on every service's cluster IP and port (TCP) and relays to a ready
// endpoint. It needs a network namespace in which every service address is local.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"net"
	"time"

	core "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

type serviceProxy struct {
	find endpointFinder
	open map[string]net.Listener // by "ip:port"
}

func newServiceProxy(find endpointFinder) *serviceProxy {
	return &serviceProxy{find: find, open: map[string]net.Listener{}}
}

// servicePort is one port of one service.
type servicePort struct{ namespace, service, port string }

// sync opens and closes listeners so that they are those of the services.
func (p *serviceProxy) sync(context.Context) error {
	services, err := p.find.services.List(labels.Everything())
	if err != nil {
		return err
	}
	wanted := listeners(services)
	for address, l := range p.open {
		if _, ok := wanted[address]; !ok {
			l.Close()
			delete(p.open, address)
		}
	}
	var failures []error
	for address, target := range wanted {
		if p.open[address] == nil {
			failures = append(failures, p.listen(address, target))
		}
	}
	return errors.Join(failures...)
}

// listeners maps the addresses of all services to their ports.
func listeners(services []*core.Service) map[string]servicePort {
	wanted := map[string]servicePort{}
	for _, s := range services {
		if s.Spec.ClusterIP == "" || s.Spec.ClusterIP == core.ClusterIPNone {
			continue
		}
		for _, port := range s.Spec.Ports {
			if port.Protocol == core.ProtocolTCP {
				address := net.JoinHostPort(s.Spec.ClusterIP, fmt.Sprint(port.Port))
				wanted[address] = servicePort{s.Namespace, s.Name, port.Name}
			}
		}
	}
	return wanted
}

func (p *serviceProxy) listen(address string, target servicePort) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	p.open[address] = l
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go p.relay(conn.(*net.TCPConn), target)
		}
	}()
	return nil
}

// relay connects a client with a ready endpoint, or resets the connection when there is none.
func (p *serviceProxy) relay(client *net.TCPConn, target servicePort) {
	defer client.Close()
	server := dialAny(p.find.addresses(target))
	if server == nil {
		client.SetLinger(0)
		return
	}
	defer server.Close()
	go func() {
		io.Copy(server, client)
		server.CloseWrite()
	}()
	io.Copy(client, server)
}

// dialAny tries addresses in random order.
func dialAny(addresses []string) *net.TCPConn {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	for _, a := range addresses {
		if conn, err := net.DialTimeout("tcp", a, 2*time.Second); err == nil {
			return conn.(*net.TCPConn)
		}
	}
	return nil
}

// addresses are the "ip:port" of a service port's ready endpoints.
func (f endpointFinder) addresses(target servicePort) []string {
	var found []string
	for _, slice := range f.endpointSlices(target.namespace, target.service) {
		for _, port := range slice.Ports {
			if port.Port == nil || (port.Name != nil && *port.Name != target.port) {
				continue
			}
			for _, ip := range readyIPs(slice) {
				found = append(found, net.JoinHostPort(ip, fmt.Sprint(*port.Port)))
			}
		}
	}
	return found
}

func (f endpointFinder) endpointSlices(namespace, service string) []*discovery.EndpointSlice {
	// A lister over a cache has no errors.
	slices, _ := f.slices.EndpointSlices(namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service}))
	return slices
}

func readyIPs(slice *discovery.EndpointSlice) []string {
	var ips []string
	for _, e := range slice.Endpoints {
		if e.Conditions.Ready == nil || *e.Conditions.Ready {
			ips = append(ips, e.Addresses...)
		}
	}
	return ips
}
