package serve

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/live"
	"github.com/weirhq/weir/cmd/weir/internal/metrics"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/policy"
)

// watch is what operators see of a server, and what is written down of what they do.
type watch struct {
	refused *adminapi.Refusals
	logged  *policy.RefusalLog
	audit   *adminguard.AuditLog
	metrics *metrics.Metrics
	guard   *adminguard.Guard
	admin   *adminapi.Handler
	// operators are the pages for them.
	operators *operatorPages
}

// observe makes it, before there are limits.
func (s *serving) observe() (err error) {
	if s.refused, err = adminapi.NewRefusals(nil); err != nil {
		return err
	}
	if s.logged, err = s.o.admin.refusals(s.log); err != nil {
		return err
	}
	if s.metrics, err = metrics.New(metrics.Options{OTLP: s.o.otlp, Hash: s.logged.Hash, Logger: s.log}); err != nil {
		return fmt.Errorf("weir: metrics: %w", err)
	}
	s.audit, err = s.o.admin.audit(s.log)
	return err
}

// watched are the options of an engine that tells of what it decides.
func (s *serving) watched(e policy.EngineOptions) policy.EngineOptions {
	e.Observer = s.metrics.Observer()
	e.OnRefused = s.refused.Refused
	if s.o.admin.refusalLog != (weir.Rate{}) {
		e.OnRefused = func(requests []*policy.Request, v *policy.Verdict) uint64 {
			s.logged.Refused(requests, v)
			return s.refused.Refused(requests, v)
		}
	}
	return e
}

// measure begins to measure the limits and the fronts.
func (s *serving) measure() error {
	s.refused.SetVersion(s.limits.Engine().Report().Version)
	err := s.metrics.Start(metrics.Sources{
		Limits: s.limits, Status: s.status, Rejected: s.check.Rejected, Reservations: s.held.Len, Admin: s.adminCounts,
		Refusals: s.refused.Counts, TLS: s.secrets.certificates.of(),
	})
	if err != nil {
		return fmt.Errorf("weir: metrics: %w", err)
	}
	return nil
}

// adminCounts are what metrics say of the admin pages.
func (s *serving) adminCounts() metrics.Admin {
	c := s.guard.Counts()
	changes, unwritten := s.audit.Counts()
	return metrics.Admin{
		Requests: c.Entered, Unauthorized: c.Unauthorized, Limited: c.Limited, Changes: changes, AuditErrors: unwritten,
		AuditFailing: s.audit.Failing(), Streams: s.admin.Streams(),
	}
}

// sendingTime is how long metrics may take that were not sent yet when the server ends.
const sendingTime = 5 * time.Second

// unobserve ends it. Nothing is left to do for a second call.
func (s *serving) unobserve() {
	if s.metrics != nil {
		ctx, cancel := context.WithTimeout(context.Background(), sendingTime)
		defer cancel()
		if err := s.metrics.Close(ctx); err != nil {
			s.log.Warn("the last metrics were not sent", "error", err.Error())
		}
	}
	if s.audit != nil {
		if err := s.audit.Close(); err != nil {
			s.log.Error("the audit log was not ended in order", "error", err.Error())
		}
	}
}

// reloaded notes a reload. One that an operator has asked for is noted with the name.
func (s *serving) reloaded(r *live.Reload) {
	s.refused.SetVersion(r.Version)
	if r.Cause == checkapi.APICause {
		return
	}
	entry := operator.AuditEntry{
		Time: r.Time, Who: r.Cause, Action: "reload",
		Detail: fmt.Sprintf("version %d, %s", r.Version, terminal.Plural(r.Count, "change", "changes")),
		Result: adminguard.AuditOK,
	}
	if len(r.Mistakes) > 0 {
		entry.Detail, entry.Result = "", r.Mistakes[0]
	}
	s.audit.Add(entry)
}

// loginFailed notes that a wrong token was shown.
func (s *serving) loginFailed(from netip.Addr, path string) {
	s.audit.Add(operator.AuditEntry{
		Who: "", From: from.String(), Action: adminguard.AuditLoginFailed, Detail: path, Result: "the token is unknown",
	})
}
