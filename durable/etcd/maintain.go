package etcd

import (
	"context"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	maintainEvery = time.Second
	// defragmentAgain is how long to wait before it is tried again to make a full database smaller.
	defragmentAgain = 10 * time.Second
	// keptRevisions are not given up, for watchers that were away for a moment.
	keptRevisions = 1000
	// compactEvery is after how many revisions old ones are given up.
	compactEvery = 10_000
	// compactBytes is after how many bytes in use they are given up even if they are fewer.
	compactBytes = 64 << 20
)

// maintain keeps the database small, until the server is closed or has failed.
func (s *Server) maintain() {
	var compacted, inUse int64
	var tried time.Time
	s.every(maintainEvery, func() {
		full := s.full()
		s.compact(&compacted, &inUse, full)
		s.defragment(full, &tried)
	})
}

// every calls f again and again, until the server is closed or has failed.
func (s *Server) every(d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			f()
		case <-s.failure.done:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// full reports whether writes are refused because the quota was reached, by this node or another one.
func (s *Server) full() bool {
	for _, a := range s.etcd.Server.Alarms() {
		if a.GetAlarm() == etcdserverpb.AlarmType_NOSPACE {
			return true
		}
	}
	return false
}

// compact gives up old revisions, if this server leads. Computed, not measured: 5,000 writes of 300 bytes a second hold some 6 MB
// beyond what is in use. etcd gives up about 100,000 of them a second at most: more than that fills the database up to its quota.
func (s *Server) compact(compacted, inUse *int64, full bool) {
	e := s.etcd.Server
	if e.Lead() != uint64(e.MemberID()) {
		return
	}
	revision, kept := e.KV().Rev(), int64(keptRevisions)
	used := e.Backend().SizeInUse()
	switch {
	case full || used-*inUse > compactBytes:
		kept = 0
	case revision-*compacted < compactEvery:
		return
	}
	if revision-kept <= *compacted {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, closeTime)
	defer cancel()
	var options []clientv3.CompactOption
	if full {
		options = append(options, clientv3.WithCompactPhysical()) // so that there is something to give back
	}
	if _, err := s.client.Compact(ctx, revision-kept, options...); err == nil {
		*compacted, *inUse = revision-kept, used
	}
}

// defragment gives room in the file back, where that is worth it, and lets writes in again when there is enough. While it does,
// the node does not respond: about a second for a few hundred megabytes. How much is in use is not known exactly where nothing is
// written, as when it is full: then it is tried again now and then.
func (s *Server) defragment(full bool, tried *time.Time) {
	b := s.etcd.Server.Backend()
	near := b.Size() > s.quota/4*3
	if full && time.Since(*tried) >= defragmentAgain || near && b.SizeInUse() < b.Size()/4*3 {
		*tried = time.Now()
		if err := b.Defrag(); err != nil {
			s.logger.Warn("the database of the durable limits could not be made smaller", "error", err.Error())
			return
		}
	}
	if !full || b.Size() > s.quota/10*9 {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, closeTime)
	defer cancel()
	_, _ = s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{
		MemberID: uint64(s.etcd.Server.MemberID()), Alarm: etcdserverpb.AlarmType_NOSPACE,
	}) // the next round tries again
}
