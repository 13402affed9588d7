package main

import (
	"net"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
	core "k8s.io/api/core/v1"
)

const dnsSuffix = ".svc.cluster.local."

// serveDNS answers A queries for <service>.<namespace>.svc.cluster.local, and those for the single
// pods behind a headless service.
func serveDNS(address string, find endpointFinder) error {
	conn, err := net.ListenPacket("udp", address)
	if err != nil {
		return err
	}
	go func() {
		query := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(query)
			if err != nil {
				return
			}
			if reply := answer(query[:n], find); reply != nil {
				conn.WriteTo(reply, from)
			}
		}
	}()
	return nil
}

// answer turns a query into its reply, or nil if it is not one.
func answer(query []byte, find endpointFinder) []byte {
	var m dnsmessage.Message
	if m.Unpack(query) != nil || len(m.Questions) != 1 {
		return nil
	}
	m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
	m.Answers, m.Authorities, m.Additionals = nil, nil, nil
	question := m.Questions[0]
	ips, known := find.resolve(strings.ToLower(question.Name.String()))
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		m.Answers = records(question.Name, ips)
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

func records(name dnsmessage.Name, ips []string) []dnsmessage.Resource {
	var list []dnsmessage.Resource
	for _, s := range ips {
		if ip := net.ParseIP(s).To4(); ip != nil {
			header := dnsmessage.ResourceHeader{Name: name, Class: dnsmessage.ClassINET, TTL: 1}
			list = append(list, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: [4]byte(ip)}})
		}
	}
	return list
}

// resolve looks up a name: <service>.<namespace>, or <host name>.<service>.<namespace>.
func (f endpointFinder) resolve(name string) (ips []string, known bool) {
	labels := strings.Split(strings.TrimSuffix(name, dnsSuffix), ".")
	if !strings.HasSuffix(name, dnsSuffix) || len(labels) < 2 || len(labels) > 3 {
		return nil, false
	}
	namespace, service := labels[len(labels)-1], labels[len(labels)-2]
	s, err := f.services.Services(namespace).Get(service)
	if err != nil {
		return nil, false
	}
	if len(labels) == 3 {
		ips = f.hostIPs(namespace, service, labels[0])
		return ips, len(ips) > 0
	}
	if s.Spec.ClusterIP != core.ClusterIPNone {
		return []string{s.Spec.ClusterIP}, true
	}
	for _, slice := range f.endpointSlices(namespace, service) {
		ips = append(ips, readyIPs(slice)...)
	}
	return ips, true
}

// hostIPs are the addresses of a service's pods with a host name.
func (f endpointFinder) hostIPs(namespace, service, hostname string) []string {
	var ips []string
	for _, slice := range f.endpointSlices(namespace, service) {
		for _, e := range slice.Endpoints {
			if e.Hostname != nil && *e.Hostname == hostname {
				ips = append(ips, e.Addresses...)
			}
		}
	}
	return ips
}
