package main_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/cmd/weir/internal/envoy/commonratelimitv3"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/kuadrantv1"
	"github.com/weirhq/weir/cmd/weir/internal/envoy/ratelimitv3"
)

// ways are all ways to ask for a permit of a policy by its name, each of which reports whether it was allowed.
func (s *allFronts) ways() map[string]func(key string) bool {
	client, conn := s.redis(), s.dial()
	post := func(path, body string) func(key string) bool {
		return func(key string) bool {
			code, text := s.post(path, strings.ReplaceAll(body, "KEY", key))
			if code != 200 && code != 429 || code == 200 != strings.Contains(text, `"allowed":true`) {
				s.t.Errorf("%s: %d %s", path, code, text)
			}
			return code == 200
		}
	}
	command := func(args ...string) func(key string) bool {
		return func(key string) bool {
			all := make([]any, len(args))
			for i, a := range args {
				all[i] = strings.ReplaceAll(a, "KEY", key)
			}
			reply, err := client.Do(s.t.Context(), all...).Result()
			if err != nil {
				s.t.Errorf("%v: %v", args, err)
			}
			return allowedBy(reply)
		}
	}
	entry := func(key string) []*commonratelimitv3.RateLimitDescriptor {
		return []*commonratelimitv3.RateLimitDescriptor{
			{Entries: []*commonratelimitv3.RateLimitDescriptor_Entry{{Key: "user", Value: key}}},
		}
	}
	return map[string]func(key string) bool{
		"check":        post("/v1/check", `{"policy":"api","key":"KEY"}`),
		"check, wait":  post("/v1/check", `{"policy":"api","key":"KEY","wait":0.001}`),
		"reserve":      post("/v1/reserve", `{"policy":"api","key":"KEY","cost":1}`),
		"batch":        post("/v1/batch", `{"checks":[{"policy":"api","key":"KEY"}]}`),
		"atomic batch": post("/v1/batch", `{"atomic":true,"checks":[{"policy":"api","key":"KEY"}]}`),
		"TAKE":         command("WEIR.TAKE", "api", "KEY"),
		"TAKE, WAIT":   command("WEIR.TAKE", "api", "KEY", "1", "WAIT", "1"),
		"TAKEALL":      command("WEIR.TAKEALL", "api", "KEY", "1"),
		"RESERVE":      command("WEIR.RESERVE", "api", "KEY", "1"),
		"Envoy": func(key string) bool {
			answer, err := descriptor(s.t.Context(), conn, "edge", "user", key)
			if err != nil {
				s.t.Error(err)
			}
			return answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT
		},
		"Kuadrant": func(key string) bool {
			service, r := kuadrantv1.NewRateLimitServiceClient(conn), &ratelimitv3.RateLimitRequest{Domain: "edge", Descriptors: entry(key)}
			answer, err := service.CheckRateLimit(s.t.Context(), r)
			if err == nil {
				_, err = service.Report(s.t.Context(), r)
			}
			if err != nil {
				s.t.Error(err)
			}
			return answer.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT
		},
	}
}

// allowedBy reports whether a reply of a command that begins with whether it was limited allows: 0 or, of RESP3, a map.
func allowedBy(reply any) bool {
	switch reply := reply.(type) {
	case []any:
		return len(reply) > 0 && reply[0] == int64(0)
	case map[any]any:
		return reply["allowed"] == true || reply["limited"] == false
	}
	return false
}

// TestNamedChecksAskNoRules: whatever rules a configuration has, a check that names its policy is held to the limits of the policy.
func TestNamedChecksAskNoRules(t *testing.T) {
	t.Parallel()
	const (
		policies = "version: 1\npolicies:\n  api: {limit: 1/h, key: client.ip}\n  other: {limit: 1/h, key: client.ip}\nrules:\n"
		all      = "  - {name: all, limits: [api]}\n"
	)
	dir := t.TempDir()
	tree := filepath.Join(dir, "edge.yaml")
	writeConfig(t, tree, "domain: edge\ndescriptors:\n  - {key: user, rate_limit: {unit: year, requests_per_unit: 1}}\n")
	for name, rules := range map[string]string{
		"none":                 all,
		"method":               "  - {name: x, when: 'request.method != \"POST\"', exempt: true}\n" + all,
		"path":                 "  - {name: x, when: '!request.path.startsWith(\"/api/\")', exempt: true}\n" + all,
		"pattern":              "  - {name: x, match: {path: '/{file}'}, exempt: true}\n" + all,
		"rest":                 "  - {name: x, match: {path: '/{rest...}'}, exempt: true}\n" + all,
		"everything":           "  - {name: x, exempt: true}\n",
		"everything behind":    all + "  - {name: x, exempt: true}\n",
		"no header":            "  - {name: x, match: {header: {Authorization: null}}, exempt: true}\n" + all,
		"header":               "  - {name: x, when: '!(\"x-key\" in request.headers)', exempt: true}\n" + all,
		"no host":              "  - {name: x, when: 'request.host == \"\"', exempt: true}\n" + all,
		"protocol":             "  - {name: x, when: 'request.protocol != \"http\"', exempt: true}\n" + all,
		"old protocol":         "  - {name: x, match: {protocol: weir-check}, exempt: true}\n" + all,
		"no client":            "  - {name: x, when: 'client.ip == \"-\"', exempt: true}\n" + all,
		"final":                "  - {name: x, final: true, limits: [other]}\n" + all,
		"final without limits": "  - {name: x, final: true}\n" + all,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "weir.yaml")
			writeConfig(t, path, policies+rules)
			if got := weir(t, nil, "config", "check", path); got.status != 0 {
				t.Fatalf("%s%s", got.stdout, got.stderr)
			}
			s := startFronts(t, nil, "--config", path, "--ratelimit-config", tree)
			for way, ask := range s.ways() {
				if key := strings.ReplaceAll(way, " ", "-"); !ask(key) || ask(key) || ask(key) {
					t.Errorf("%s: of three requests not exactly the first was allowed", way)
				}
			}
			s.peeks(t, s.redis())
			if got := s.statusOf("other", "k", 1); got != 200 {
				t.Errorf("the other policy was charged: %d", got)
			}
		})
	}
}

// peeks looks at a key of the policy before and after it is used up.
func (s *allFronts) peeks(t *testing.T, client *redis.Client) {
	t.Helper()
	peek := func() string {
		code, text := s.post("/v1/check", `{"policy":"api","key":"peeked","cost":0}`)
		reply, err := client.Do(context.WithoutCancel(t.Context()), "WEIR.PEEK", "api", "peeked").Result()
		if err != nil {
			t.Error(err)
		}
		return fmt.Sprint(code, strings.Contains(text, `"limit":1,`), allowedBy(reply))
	}
	before := peek()
	if got := s.statusOf("api", "peeked", 1); got != 200 {
		t.Errorf("take: %d", got)
	}
	if after := peek(); before != "200 true true" || after != "429 true false" {
		t.Errorf("a peek said %s, and %s afterwards", before, after)
	}
}
