package etcd

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// renewer renews a lease. Over a network it does so on one stream, as etcd checks the password for each one that is opened. It
// has one request on the way at a time, so that it is known when the request of a response was sent.
type renewer struct {
	client *clientv3.Client
	lease  clientv3.LeaseID
	stream etcdserverpb.Lease_LeaseKeepAliveClient // nil if there is none
	cancel context.CancelFunc
}

// renew returns for how many seconds the lease counts from when it was called.
func (r *renewer) renew(ctx context.Context) (seconds int64, err error) {
	if r.client.ActiveConnection() == nil { // the server is in this process
		var answer *clientv3.LeaseKeepAliveResponse
		if answer, err = r.client.KeepAliveOnce(ctx, r.lease); err != nil {
			return 0, fmt.Errorf("%w", err)
		}
		return answer.TTL, nil
	}
	if r.stream == nil {
		var live context.Context
		live, r.cancel = context.WithCancel(clientv3.WithRequireLeader(context.WithoutCancel(ctx)))
		stop := context.AfterFunc(ctx, r.cancel)
		r.stream, err = clientv3.RetryLeaseClient(r.client).LeaseKeepAlive(live)
		if stop(); err != nil {
			r.close()
			return 0, fmt.Errorf("%w", err)
		}
	}
	defer context.AfterFunc(ctx, r.cancel)()
	err = r.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(r.lease)})
	var answer *etcdserverpb.LeaseKeepAliveResponse
	if err == nil {
		answer, err = r.stream.Recv()
	}
	if err != nil {
		r.close()
		return 0, fmt.Errorf("%w", err)
	}
	if answer.GetTTL() <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return answer.GetTTL(), nil
}

// close ends the stream.
func (r *renewer) close() {
	if r.cancel != nil {
		r.cancel()
	}
	r.stream, r.cancel = nil, nil
}
