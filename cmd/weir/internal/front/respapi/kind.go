package respapi

import (
	"bytes"
	"math"

	"github.com/spf13/pflag"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/internal/regularfile"
)

const (
	longestPassword     = 4096
	defaultThrottleKeys = 1_000_000
	mostThrottleKeys    = min(1<<31, math.MaxInt)
)

// Kind is the front as weir serve offers it.
func Kind() *front.Kind {
	var passwordFile, password string
	keys := defaultThrottleKeys
	return &front.Kind{
		Name: "resp", Usual: "127.0.0.1:6380", Usage: "address for clients that speak to Redis", Silent: "may be silent",
		Connections: 10_000,
		Register: func(fs *pflag.FlagSet) {
			fs.Var(flags.File(&passwordFile), "resp-password-file",
				"file with the password of 1 to 4096 characters that clients of --resp must give (default: none is needed)")
			fs.Var(flags.Int(&keys, 1, mostThrottleKeys), "resp-keys",
				"keys of CL.THROTTLE tracked at a time, from 1 to 2^31; when none of\nthem can be forgotten, "+
					"new ones are refused")
		},
		Check: func(*pflag.FlagSet) (err error) {
			password, err = readPassword(passwordFile)
			return err
		},
		New: func(s front.Shared) (front.Made, error) {
			server, err := New(Options{
				Limits: s.Limits, Holds: s.Holds, Password: password, TLS: s.TLS(), MaxConnections: s.MaxConnections,
				ConnectionsPerAddress: s.ConnectionsPerAddress, IdleTimeout: s.IdleTimeout, MaxKeys: keys, Logger: s.Log,
			})
			if err != nil {
				return front.Made{}, err
			}
			return front.Made{Front: server, Status: map[string]func() any{"resp": func() any { return server.Status() }}}, nil
		},
		Unguarded: func() string {
			if password != "" {
				return ""
			}
			return "give it a --resp-password-file, or clients certificates by --tls-client-ca"
		},
	}
}

// readPassword returns the password in a file, "" if there is no file.
func readPassword(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	text, err := regularfile.Read(path, longestPassword+2)
	if err != nil {
		return "", flags.Inputf("weir: --resp-password-file: %s", err)
	}
	text = bytes.TrimRight(text, "\r\n")
	if len(text) == 0 || len(text) > longestPassword {
		return "", flags.Inputf("weir: --resp-password-file: %s has %d bytes: must have from 1 to %d",
			path, len(text), longestPassword)
	}
	return string(text), nil
}
