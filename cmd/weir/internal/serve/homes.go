package serve

import (
	"context"
	"log/slog"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
	"github.com/weirhq/weir/store"
)

// homes is what limits are kept in outside of this process, as far as there is any.
type homes struct {
	store   *remote.Fleet
	cluster *remote.Cluster
	log     *slog.Logger
}

// open has them opened, when the configuration was read for the first time, as far as it has them.
func (r *homes) open(ctx context.Context, read *reader, o *live.Options) {
	o.Store = func() (store.Home, error) {
		if read.store == nil {
			return nil, nil //nolint:nilnil // there is none, and none is needed
		}
		var err error
		r.store, err = remote.OpenFleet(context.WithoutCancel(ctx), read.store, r.log)
		if err != nil {
			return nil, flags.Inputf("%s", err)
		}
		return r.store, nil
	}
	o.Durable = func() (store.Home, error) {
		if read.cluster == nil {
			return nil, nil //nolint:nilnil // there is none, and none is needed
		}
		if read.needed {
			var err error
			if r.cluster, err = remote.OpenCluster(ctx, read.cluster, r.log); err != nil {
				return nil, err
			}
			return r.cluster, nil
		}
		r.cluster = remote.IdleCluster(read.cluster, r.log)
		read.begin = r.cluster.Begin
		return r.cluster, nil
	}
}

// tell adds the states of both to a status.
func (r *homes) tell(status map[string]any) {
	if r.store != nil {
		status["store"] = r.store.Status()
	}
	if r.cluster != nil && !r.cluster.Idle() {
		status["cluster"] = r.cluster.Status()
	}
}

// end ends the use of both. Nothing is left to do for a second call.
func (r *homes) end() {
	giveBack(r.store, r.log)
	leave(r.cluster, r.log)
	r.store, r.cluster = nil, nil
}

// giveBack ends the use of a store: what was taken of it and not used goes back.
func giveBack(f *remote.Fleet, log *slog.Logger) {
	if f == nil {
		return
	}
	if err := f.Close(); err != nil {
		log.Warn("the store was not closed in order: it was not told of all that was taken, or not used", "error", err.Error())
	}
}

// leave leaves the cluster: another node takes over at once.
func leave(c *remote.Cluster, log *slog.Logger) {
	if c == nil {
		return
	}
	if err := c.Close(); err != nil {
		log.Warn("the cluster was not left in order: another node takes over when the time of this one is up",
			"error", err.Error())
	}
}
