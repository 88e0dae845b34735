package serve

import (
	"context"
	"net"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/checkapi"
	"github.com/weirhq/weir/cmd/weir/internal/front/dashboard"
	"github.com/weirhq/weir/cmd/weir/internal/front/forwardauth"
)

// listenHTTP makes the front of clients that speak HTTP, and that of operators.
func (s *serving) listenHTTP(ctx context.Context, cmd *cobra.Command) error {
	clients, err := front.Listen(ctx, "http", s.o.fronts.http, defaultHTTP)
	if err != nil {
		return err
	}
	operators := clients
	if s.o.admin.address != "" {
		if operators, err = front.Listen(ctx, "admin", s.o.admin.address, usualAdmin); err != nil {
			_ = clients.Close() // no client has connected yet
			return err
		}
	}
	if err := s.sites(cmd, clients, operators); err != nil {
		_, _ = clients.Close(), operators.Close() // likewise
		return err
	}
	return nil
}

// sites make what is answered over HTTP: to clients and to operators, who may have the same listener.
func (s *serving) sites(cmd *cobra.Command, clients, operators net.Listener) (err error) {
	o, apart := s.o, clients != operators
	guarding := adminguard.Options{
		Local: isLoopback(operators.Addr()), Rate: weir.Rate(o.admin.rate), Burst: o.admin.rate.burst(),
		LoginFailed: s.loginFailed,
	}
	if s.secrets.tokens != nil {
		guarding.TokensNow = s.secrets.tokens.Tokens
	}
	if o.admin.clientCA != "" {
		guarding.Certificate = s.secrets.certificates.Admin
	}
	if s.guard, err = adminguard.New(guarding); err != nil {
		return err
	}
	handling := checkapi.Options{Limits: s.limits, Holds: s.held, Admin: s.guard, Audit: s.audit, Extra: s.status}
	if s.outside.cluster != nil {
		handling.Quotas, handling.Ready = s.outside.cluster, s.outside.cluster.Ready
	}
	if handling.Document, err = adminapi.OpenAPI(checkapi.OpenAPI()); err != nil {
		return err
	}
	if apart {
		handling.AdminAt = "--admin " + operators.Addr().String()
	}
	s.check = checkapi.NewHandler(handling)
	s.fronts.OnEnd = s.check.EndWaiting
	var members adminapi.Members
	if s.outside.cluster != nil {
		members = s.outside.cluster
	}
	s.admin = adminapi.New(adminapi.Options{
		Members: members,
		Limits:  s.limits, Guard: s.guard, Audit: s.audit, Refusals: s.refused, Status: s.status, Explain: s.check.Explain,
		Started: s.started, Version: programVersion(),
	})
	pages := &operatorPages{admin: s.admin, ui: dashboard.Handler(), metrics: s.guard.Guarded(s.metrics.Handler())}
	if o.admin.metricsPublic {
		pages.metrics = s.metrics.Handler()
	}
	all := &site{front: s.check, operators: pages, local: isLoopback(clients.Addr()), names: o.fronts.httpNames}
	if o.configured() {
		if all.auth, err = s.forwardAuth(cmd); err != nil {
			return err
		}
	}
	certificates := s.secrets.certificates
	if !apart {
		s.addHTTP("http", all, certificates.ofAdmin("h2", "http/1.1"), clients, s.drain)
		return nil
	}
	all.operators, all.elsewhere = nil, handling.AdminAt
	s.addHTTP("http", all, certificates.of("h2", "http/1.1"), clients, s.drain)
	s.addHTTP("admin", &site{front: s.check.Admin(), operators: pages}, certificates.ofAdmin("h2", "http/1.1"), operators,
		func() {})
	return nil
}

// forwardAuth returns proxies that ask about requests of others.
func (s *serving) forwardAuth(cmd *cobra.Command) (http.Handler, error) {
	auth, err := forwardauth.New(forwardauth.Options{
		Decider: s.limits.Engine(), Trusted: s.o.config.trusted, Status: s.o.config.status(cmd.Flags()), Logger: s.log,
		Fields: s.o.config.authFields(),
	})
	if err != nil {
		return nil, err
	}
	s.told = append(s.told, teller{"forward_auth", func() any { return auth.Counts() }})
	return auth, nil
}

// drain makes what is asked about the server say that it shuts down.
func (s *serving) drain() {
	s.check.Drain()
	s.admin.Drain()
}
