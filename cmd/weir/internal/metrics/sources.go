package metrics

import (
	"crypto/tls"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
)

// Sources are what is measured. All functions may be called at any time and by several goroutines.
type Sources struct {
	// Limits are those that are served. Required.
	Limits *live.Limits
	// Status is what /v1/status has besides the limits, by name, as the fronts, the store and the cluster tell it: "resp",
	// "grpc", "rlqs", "forward_auth", "store" (a fleet.Status) and "cluster" (a cluster.Status), as far as they are there.
	// Default: nil.
	Status func() map[string]any
	// Rejected is how many requests of the JSON API could not be answered, Reservations how many are open. Default: nil.
	Rejected     func() int64
	Reservations func() int
	// Admin counts what came to the admin API. Default: nil.
	Admin func() Admin
	// Refusals counts the refusals that were noted, and those that were not. Default: nil.
	Refusals func() (noted, missed uint64)
	// TLS has the certificate of the fronts. Default: nil, they speak no TLS.
	TLS *tls.Config
}

// Admin are counts of the admin API.
type Admin struct {
	// Requests counts those that were let in, Unauthorized those without a token or certificate that lets in, Limited those that
	// were refused because they were too many.
	Requests     uint64
	Unauthorized uint64
	Limited      uint64
	// Changes counts what was changed, and AuditErrors how often an entry of the audit log could not be written. AuditFailing
	// reports whether that was so the last time.
	Changes      uint64
	AuditErrors  uint64
	AuditFailing bool
	// Streams is how many streams of events are open.
	Streams int
}

// snapshot is what the sources say at one moment, so that all metrics of a page are of that moment, and none is asked twice.
type snapshot struct {
	limits         live.Status
	status         map[string]any
	store          remote.FleetStatus
	cluster        remote.ClusterStatus
	rejected       int64
	reservations   int
	admin          Admin
	noted, missed  uint64
	certificateEnd time.Time
}

// read asks the sources.
func (s *Sources) read() *snapshot {
	n := &snapshot{limits: s.Limits.Status()}
	if s.Status != nil {
		n.status = s.Status()
		n.store, _ = n.status["store"].(remote.FleetStatus)
		n.cluster, _ = n.status["cluster"].(remote.ClusterStatus)
	}
	if s.Rejected != nil {
		n.rejected = s.Rejected()
	}
	if s.Reservations != nil {
		n.reservations = s.Reservations()
	}
	if s.Admin != nil {
		n.admin = s.Admin()
	}
	if s.Refusals != nil {
		n.noted, n.missed = s.Refusals()
	}
	if s.TLS != nil {
		n.certificateEnd = certificateEnd(s.TLS)
	}
	return n
}

// certificateEnd is until when the certificate of a server is valid, the zero time if that is not known.
func certificateEnd(c *tls.Config) time.Time {
	var shown *tls.Certificate
	switch {
	case c.GetCertificate != nil:
		shown, _ = c.GetCertificate(&tls.ClientHelloInfo{}) // what is wrong with it is logged where it is read
	case len(c.Certificates) > 0:
		shown = &c.Certificates[0]
	}
	if shown == nil || shown.Leaf == nil {
		return time.Time{}
	}
	return shown.Leaf.NotAfter
}
