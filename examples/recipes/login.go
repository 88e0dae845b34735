// Package recipes has what docs/recipes.md shows.
package recipes

import (
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
	"github.com/weirhq/weir/policy"
)

// Login allows each client 5 failures at an account in an hour. The next attempt locks it out for a day. A handler whose login
// succeeds calls httplimit.Reservation(r.Context()).Cancel(), so that only failures count.
func Login(login http.Handler) (http.Handler, error) {
	engine, err := policy.NewEngine(&policy.Set{
		Policies: []policy.Policy{{
			Name:    "login",
			Limits:  []policy.Limit{{Limit: weir.SlidingWindow(weir.PerHour(5), 0)}},
			Key:     policy.JoinText(policy.Client(), policy.AttributeText("account")),
			Lockout: &policy.Lockout{Refusals: 1, Within: time.Hour, For: 24 * time.Hour},
		}},
		Rules: []policy.Rule{{Name: "all", Limits: []policy.Use{{Policy: "login"}}}},
	}, policy.EngineOptions{})
	if err != nil {
		return nil, err
	}
	gate, err := httplimit.NewGate(httplimit.GateOptions{Engine: engine, Attributes: account, Reserve: true})
	if err != nil {
		return nil, err
	}
	return gate.Handler(login), nil
}

// account is the account of a login form. The handler can still read the form from r.PostForm.
func account(r *http.Request) map[string]string {
	r.Body = http.MaxBytesReader(nil, r.Body, 64<<10)
	return map[string]string{"account": strings.ToLower(r.PostFormValue("account"))}
}
