package flags

import (
	"crypto/x509"
	"os"
)

// Authorities reads the certificates in a file, the value of a flag of a client; it may be a pipe. It returns nil if the flag was
// not given.
func Authorities(flag, path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // those of the system
	}
	text, err := os.ReadFile(path) //nolint:gosec // the file is the choice of the operator
	if err != nil {
		return nil, Inputf("--%s: %s", flag, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, Inputf("--%s: %s has no certificate in PEM", flag, path)
	}
	return roots, nil
}
