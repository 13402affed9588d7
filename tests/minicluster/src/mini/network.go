package main

// The cluster's network is the loopback interface of its own network namespace. Every pod address
// is an address of that interface; every service address is routed to it, so that the service
// proxy can listen on it.

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	podCIDR      = "10.244.0.0/16"
	serviceCIDR  = "10.96.0.0/16"
	kubernetesIP = "10.96.0.1"  // the service "kubernetes": the first address by convention
	dnsIP        = "10.96.0.10" // the cluster DNS: the tenth by convention
	nodeIP       = "10.88.0.1"
	localAPI     = "127.0.0.1:6443"

	loopbackIndex = 1 // of lo in every network namespace
)

// setUpLoopback brings up the interface with the node's address and the service network.
func setUpLoopback() error {
	up := unix.IfInfomsg{Index: loopbackIndex, Flags: unix.IFF_UP, Change: unix.IFF_UP}
	if err := rtnetlink(unix.RTM_NEWLINK, 0, up); err != nil {
		return fmt.Errorf("set up loopback: %w", err)
	}
	if err := addAddress(netip.MustParseAddr(nodeIP)); err != nil {
		return err
	}
	services := netip.MustParsePrefix(serviceCIDR)
	route := unix.RtMsg{
		Family: unix.AF_INET, Dst_len: uint8(services.Bits()), Table: unix.RT_TABLE_LOCAL,
		Protocol: unix.RTPROT_BOOT, Scope: unix.RT_SCOPE_HOST, Type: unix.RTN_LOCAL,
	}
	index := binary.NativeEndian.AppendUint32(nil, loopbackIndex)
	err := rtnetlink(unix.RTM_NEWROUTE, unix.NLM_F_CREATE, route, attribute{unix.RTA_DST, services.Addr().AsSlice()}, attribute{unix.RTA_OIF, index})
	if err != nil {
		return fmt.Errorf("route %s: %w", serviceCIDR, err)
	}
	return nil
}

// addAddress gives the loopback interface another IPv4 address.
func addAddress(ip netip.Addr) error {
	if err := changeAddress(unix.RTM_NEWADDR, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, ip); err != nil {
		return fmt.Errorf("add address %s: %w", ip, err)
	}
	return nil
}

// removeAddress takes an address away again; one that is not there is no error.
func removeAddress(ip netip.Addr) error {
	if err := changeAddress(unix.RTM_DELADDR, 0, ip); err != nil && err != unix.EADDRNOTAVAIL {
		return fmt.Errorf("remove address %s: %w", ip, err)
	}
	return nil
}

func changeAddress(kind, flags uint16, ip netip.Addr) error {
	msg := unix.IfAddrmsg{Family: unix.AF_INET, Prefixlen: 32, Scope: unix.RT_SCOPE_UNIVERSE, Index: loopbackIndex}
	return rtnetlink(kind, flags, msg, attribute{unix.IFA_LOCAL, ip.AsSlice()}, attribute{unix.IFA_ADDRESS, ip.AsSlice()})
}

// attribute is a type-length-value field of an rtnetlink message.
type attribute struct {
	kind  uint16
	value []byte
}

// rtnetlink sends one request to the kernel (rtnetlink(7)) and returns its errno.
func rtnetlink(kind, flags uint16, body any, attributes ...attribute) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	request, err := encode(kind, flags|unix.NLM_F_REQUEST|unix.NLM_F_ACK, body, attributes)
	if err != nil {
		return err
	}
	if err := unix.Sendto(fd, request, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return os.NewSyscallError("sendto", err)
	}
	reply := make([]byte, os.Getpagesize())
	n, _, err := unix.Recvfrom(fd, reply, 0)
	if err != nil {
		return os.NewSyscallError("recvfrom", err)
	}
	return acknowledged(reply[:n])
}

func encode(kind, flags uint16, body any, attributes []attribute) ([]byte, error) {
	payload, err := binary.Append(nil, binary.NativeEndian, body)
	if err != nil {
		return nil, err
	}
	for _, a := range attributes { // all values are multiples of the alignment, four bytes
		payload = binary.NativeEndian.AppendUint16(payload, uint16(unix.SizeofRtAttr+len(a.value)))
		payload = binary.NativeEndian.AppendUint16(payload, a.kind)
		payload = append(payload, a.value...)
	}
	header := unix.NlMsghdr{Len: uint32(unix.SizeofNlMsghdr + len(payload)), Type: kind, Flags: flags, Seq: 1}
	message, err := binary.Append(nil, binary.NativeEndian, header)
	return append(message, payload...), err
}

// acknowledged reads the kernel's answer: an error message whose number is 0 for success.
func acknowledged(reply []byte) error {
	messages, err := syscall.ParseNetlinkMessage(reply)
	if err != nil {
		return err
	}
	for _, m := range messages {
		if m.Header.Type != unix.NLMSG_ERROR || len(m.Data) < 4 {
			continue
		}
		if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
			return unix.Errno(-errno)
		}
		return nil
	}
	return fmt.Errorf("rtnetlink: no acknowledgement")
}
