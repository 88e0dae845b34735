package remote

import (
	"context"
	"errors"

	"github.com/weirhq/weir/durable/etcd"
)

// ErrNoServer says that a process has no etcd of its own, so that its nodes are changed with the tools of etcd.
var ErrNoServer = errors.New("weir: this server has no etcd of its own: " +
	"change the nodes of an etcd cluster with etcdctl; a file has none")

// server is the etcd server in this process.
func (l *Cluster) server() (*etcd.Server, error) {
	if l.idle.Load() {
		return nil, ErrNoServer
	}
	m, err := l.member()
	if err != nil {
		return nil, err
	}
	own, ok := m.joined.(interface{ Server() *etcd.Server })
	if !ok || own.Server() == nil {
		return nil, ErrNoServer
	}
	return own.Server(), nil
}

// Members is [etcd.Server.Members].
func (l *Cluster) Members(ctx context.Context) ([]etcd.Member, error) {
	s, err := l.server()
	if err != nil {
		return nil, err
	}
	return s.Members(ctx) //nolint:wrapcheck // it is ours
}

// RemoveMember is [etcd.Server.RemoveMember].
func (l *Cluster) RemoveMember(ctx context.Context, name string) error {
	s, err := l.server()
	if err != nil {
		return err
	}
	return s.RemoveMember(ctx, name) //nolint:wrapcheck // it is ours
}

// AddMember is [etcd.Server.AddMember].
func (l *Cluster) AddMember(ctx context.Context, name, url string) error {
	s, err := l.server()
	if err != nil {
		return err
	}
	return s.AddMember(ctx, name, url) //nolint:wrapcheck // it is ours
}
