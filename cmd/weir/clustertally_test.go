package main_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Limits of durability cluster are unavailable while they have no owner: while another node takes over, and when a machine
// stands still for longer than a second, so that the owner is given up. Whether such a request was counted is not known.

// tally is how many permits of a key were used, as far as that is known.
type tally struct{ least, most int64 }

// has reports whether so many may have been used.
func (n *tally) has(used int64) bool { return n.least <= used && used <= n.most }

// charge takes permits of the month of a key, which must be granted.
func (n *tally) charge(t *testing.T, s *server, key string, cost int) {
	t.Helper()
	eventually(t, "a request is granted", func() bool {
		status := s.statusOf("tenant-month", key, cost)
		switch status {
		case http.StatusOK:
			n.least += int64(cost)
		case http.StatusServiceUnavailable:
		default:
			t.Fatal(status)
		}
		n.most += int64(cost)
		return status == http.StatusOK
	})
}

// adjust gives permits of the month of a key back, or takes them if there are fewer than none, and returns what weir quota prints.
func (n *tally) adjust(t *testing.T, s *server, key string, permits int, more ...string) (text string) {
	t.Helper()
	args := append([]string{"adjust", "--policy", "tenant-month", "--key", key, "--permits", fmt.Sprint(permits)}, more...)
	eventually(t, "the owner adjusts", func() bool {
		printed, done := s.tryQuota(args...)
		text = printed
		if permits > 0 {
			n.least -= int64(permits)
		} else {
			n.most -= int64(permits)
		}
		if done {
			if permits > 0 {
				n.most -= int64(permits)
			} else {
				n.least -= int64(permits)
			}
		}
		return done
	})
	return text
}

// tryQuota runs weir quota against a server. It returns false if the limits are unavailable; nothing else may go wrong.
func (s *server) tryQuota(args ...string) (text string, done bool) {
	s.t.Helper()
	got := weir(s.t, nil, append(append([]string{"quota"}, args...), "--server", "http://"+s.address)...)
	if got.status == 1 && strings.Contains(got.stderr, "unavailable") {
		return "", false
	}
	if got.status != 0 || got.stderr != "" {
		s.t.Fatalf("weir quota %q: %d %s", args, got.status, got.stderr)
	}
	return got.stdout, true
}

// quota asks by weir quota, until the limits are available.
func (s *server) quota(args ...string) (text string) {
	s.t.Helper()
	eventually(s.t, "weir quota is answered", func() bool {
		printed, done := s.tryQuota(args...)
		text = printed
		return done
	})
	return text
}

// exhaust asks all servers until each refuses, and returns how many permits were granted.
func (f fleet) exhaust(t *testing.T, policy, key string) (granted int64) {
	t.Helper()
	for _, s := range f {
		eventually(t, "nothing is left", func() bool {
			switch status := s.statusOf(policy, key, 1); status {
			case http.StatusOK:
				granted++
			case http.StatusTooManyRequests:
				return true
			case http.StatusServiceUnavailable:
			default:
				t.Fatal(status)
			}
			return false
		})
	}
	return granted
}
