package etcd_test

import (
	"context"
	"testing"

	"github.com/weirhq/weir/durable/etcd"
	"github.com/weirhq/weir/durable/spectest"
)

// again is a node that can be closed and joined again.
func again(t *testing.T, o etcd.ClusterOptions) spectest.Subject {
	t.Helper()
	var c *etcd.Cluster
	join := func() []spectest.Asked {
		var err error
		if c, err = etcd.Join(context.Background(), lasting(o)); err != nil {
			t.Fatal(err)
		}
		ready(t, c.Node())
		return []spectest.Asked{c.Node()}
	}
	s := spectest.Subject{Asked: join(), Reserve: -1}
	s.Again = func(t *testing.T) []spectest.Asked {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		return join()
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestSpecEmbedded(t *testing.T) {
	t.Parallel()
	spectest.Run(t, func(t *testing.T) spectest.Subject {
		return again(t, etcd.ClusterOptions{Directory: t.TempDir()})
	})
}

func TestSpecExternal(t *testing.T) {
	t.Parallel()
	x := startExternal(t)
	spectest.Run(t, func(t *testing.T) spectest.Subject {
		return again(t, etcd.ClusterOptions{
			Endpoints: []string{x.endpoint}, TLS: x.tls, Username: userName, Password: password, Address: "127.0.0.1:0",
		})
	})
}

// TestSpecOfThree asks three nodes in turns.
func TestSpecOfThree(t *testing.T) {
	t.Parallel()
	all := three(t)
	for i := range all {
		all[i] = lasting(all[i])
	}
	nodes := joinAll(t, all)
	spectest.Run(t, func(t *testing.T) spectest.Subject {
		s := spectest.Subject{}
		for _, c := range nodes {
			s.Asked = append(s.Asked, c.Node())
			ready(t, c.Node())
		}
		return s
	})
}
