package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// pki is a throw-away certificate authority below one directory.
type pki struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newPKI creates the authority and the key that signs service account tokens.
func newPKI(dir string) (*pki, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := certificate("minicluster-ca", "")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage |= x509.KeyUsageCertSign
	p := &pki{dir: dir, cert: template, key: key}
	tokens, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(p.write("ca", template, key), writeKey(p.path("sa.key"), tokens)); err != nil {
		return nil, err
	}
	p.cert, err = readCertificate(p.path("ca.crt"))
	return p, err
}

func (p *pki) path(name string) string { return filepath.Join(p.dir, name) }

// issue writes name.crt and name.key for a client and server, whose names are IP addresses or DNS names.
func (p *pki) issue(name, commonName, organization string, names ...string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := certificate(commonName, organization)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	for _, n := range names {
		if ip := net.ParseIP(n); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, n)
		}
	}
	return p.write(name, template, key)
}

func certificate(commonName, organization string) *x509.Certificate {
	c := &x509.Certificate{
		Subject:   pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature,
	}
	if organization != "" {
		c.Subject.Organization = []string{organization}
	}
	return c
}

// write signs a certificate with the authority's key and stores it with its own key.
func (p *pki) write(name string, template *x509.Certificate, key *ecdsa.PrivateKey) error {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return err
	}
	template.SerialNumber = serial
	der, err := x509.CreateCertificate(rand.Reader, template, p.cert, &key.PublicKey, p.key)
	if err != nil {
		return err
	}
	return errors.Join(writePEM(p.path(name+".crt"), "CERTIFICATE", der), writeKey(p.path(name+".key"), key))
}

func writeKey(file string, key crypto.PrivateKey) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writePEM(file, "PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}

func readCertificate(file string) (*x509.Certificate, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(b)
	return x509.ParseCertificate(block.Bytes)
}

// object is a Kubernetes object or configuration file about to be written as JSON.
type object = map[string]any

// kubeconfig writes a self-contained kubeconfig for the client certificate called name.
func (p *pki) kubeconfig(file, name, server string) error {
	contents := map[string][]byte{}
	for _, f := range []string{"ca.crt", name + ".crt", name + ".key"} {
		b, err := os.ReadFile(p.path(f))
		if err != nil {
			return err
		}
		contents[f] = b
	}
	return writeJSON(file, object{
		"apiVersion": "v1", "kind": "Config", "current-context": "minicluster",
		"clusters": []object{{"name": "minicluster", "cluster": object{"server": server, "certificate-authority-data": contents["ca.crt"]}}},
		"users":    []object{{"name": name, "user": object{"client-certificate-data": contents[name+".crt"], "client-key-data": contents[name+".key"]}}},
		"contexts": []object{{"name": "minicluster", "context": object{"cluster": "minicluster", "user": name}}},
	})
}

func writeJSON(file string, value any) error {
	b, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, b, 0o600)
}
