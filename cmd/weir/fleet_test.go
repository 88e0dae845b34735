package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// fleet is three servers that share the policies of a file.
type fleet []*server

// startFleet starts them. The text has no store.
func startFleet(t *testing.T, store, policies string) (f fleet, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, patient(store)+policies)
	for range 3 {
		f = append(f, startServer(t, "--config", path, "--admin-rate", "10000/s", "--shutdown-timeout", "2m"))
	}
	for _, s := range f {
		s.logged("msg=serving")
	}
	return f, path
}

// patient is the beginning of a configuration with a store for a machine that is busy.
func patient(store string) string {
	return "version: 1\nstore: {url: \"" + store + "\", timeout: 1m, replicas: 3}\n"
}

// statusOf is the status of a check, which has no body that is looked at.
func (s *server) statusOf(policy, key string, cost int) int {
	s.t.Helper()
	a, _ := s.check(fmt.Sprintf(`{"policy":%q,"key":%q,"cost":%d}`, policy, key, cost))
	return a.status
}

// auth is what a proxy is answered that asks whether a request may pass.
func (s *server) auth() int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+"/v1/auth", http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range map[string]string{"Method": "GET", "Host": "example.com", "Uri": "/a", "For": "192.0.2.1"} {
		r.Header.Set("X-Forwarded-"+name, value)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

// take asks all servers at a time, from so many callers each, for one permit so many times, and returns how many were granted.
func (f fleet) take(t *testing.T, policy, key string, callers, times int) int {
	t.Helper()
	var granted atomic.Int64
	var all sync.WaitGroup
	for _, s := range f {
		for range callers {
			all.Go(func() {
				for range times {
					switch status := s.statusOf(policy, key, 1); status {
					case http.StatusOK:
						granted.Add(1)
					case http.StatusTooManyRequests:
					default:
						t.Errorf("status %d", status)
					}
				}
			})
		}
	}
	all.Wait()
	return int(granted.Load())
}

// storeStatus is what the status of a server says of its store.
type storeStatus struct {
	Store    string `json:"store"`
	Error    string `json:"error"`
	Reached  bool   `json:"reached"`
	Replicas int    `json:"replicas"`
	Breaker  struct {
		State      string `json:"state"`
		Asked      int    `json:"asked"`
		FastFailed int    `json:"fast_failed"`
	} `json:"breaker"`
}

func (s *server) store() storeStatus {
	s.t.Helper()
	var status struct {
		Store storeStatus `json:"store"`
	}
	a, body := s.do(http.MethodGet, "/v1/status", "")
	if err := json.Unmarshal([]byte(body), &status); err != nil || a.status != 200 {
		s.t.Fatalf("%v: %d %s", err, a.status, body)
	}
	return status.Store
}

// shareds are the bounds that `weir config check` tells of a file.
func shareds(t *testing.T, path string) map[string]struct{ AtOnce, Unused, Overshoot int } {
	t.Helper()
	var checked struct {
		Files []struct {
			Shared []struct {
				Policy    string
				AtOnce    int `json:"at_once"`
				Unused    int
				Overshoot int
			}
		}
	}
	if err := json.Unmarshal([]byte(weir(t, nil, "config", "check", "--json", path).stdout), &checked); err != nil { //nolint:musttag // case does not matter
		t.Fatal(err)
	}
	all := map[string]struct{ AtOnce, Unused, Overshoot int }{}
	for _, b := range checked.Files[0].Shared {
		all[b.Policy] = struct{ AtOnce, Unused, Overshoot int }{b.AtOnce, b.Unused, b.Overshoot}
	}
	return all
}

// TestFleet: three servers allow as much as one would, by each of the modes, and one that is killed takes no more than its block.
func TestFleet(t *testing.T) {
	t.Parallel()
	redis := startRedis(t)
	f, path := startFleet(t, redis.url(), `
policies:
  coherent: {limit: 1/h, burst: 150, consistency: coherent}
  leased: {limit: 1/h, burst: 320, consistency: leased}
  optimistic: {limit: 1/h, burst: 200, consistency: optimistic}
`)
	bounds := shareds(t, path)
	if got := f.take(t, "coherent", "alice", 2, 30); got != 150 {
		t.Errorf("coherent: %d of 150 were granted", got)
	}
	if got, most := f.take(t, "optimistic", "alice", 2, 60), 200+2*bounds["optimistic"].Overshoot; got < 200 || got > most {
		t.Errorf("optimistic: %d were granted, want 200 to %d", got, most)
	}

	b := bounds["leased"]
	granted := f.take(t, "leased", "alice", 2, 60)
	if least := b.AtOnce - 3*b.Unused; granted < least || granted > b.AtOnce || b.AtOnce > 320 {
		t.Errorf("leased: %d were granted, want %d to %d", granted, least, b.AtOnce)
	}
	// What one has not used comes back, and others get it.
	eventually(t, "all permits are granted", func() bool {
		granted += f.take(t, "leased", "alice", 1, 1)
		return granted >= b.AtOnce
	})
	if granted += f.take(t, "leased", "alice", 1, 5); granted != b.AtOnce {
		t.Errorf("leased: %d were granted, want %d", granted, b.AtOnce)
	}

	// kill -9 while it has a block: the permits that it has are not granted, and none twice.
	granted = f.take(t, "leased", "bob", 1, 20)
	f[2].signal(syscall.SIGKILL)
	f[2].wait()
	rest := f[:2]
	granted += rest.take(t, "leased", "bob", 2, 70)
	if least := b.AtOnce - 3*b.Unused; granted < least || granted > b.AtOnce {
		t.Errorf("after kill -9: %d were granted, want %d to %d", granted, least, b.AtOnce)
	}
	if got := rest.take(t, "coherent", "bob", 1, 1); got != 2 {
		t.Errorf("after kill -9: %d were granted of another key, want 2", got)
	}
	eventually(t, "two replicas are left", func() bool { return f[0].store().Replicas <= 2 })
}

// TestFleetGivesBack: a server that ends gives the permits back that it has not used.
func TestFleetGivesBack(t *testing.T) {
	redis := startRedis(t)
	f, path := startFleet(t, redis.url(), "policies:\n  p: {limit: 1/h, burst: 640, consistency: leased}\n")
	most := shareds(t, path)["p"].AtOnce
	granted := f.take(t, "p", "alice", 2, 10)
	for _, s := range f[1:] {
		s.signal(syscall.SIGTERM)
		s.logged("msg=stopped")
		if status := s.wait(); status.ExitCode() != 0 {
			t.Errorf("%v after SIGTERM", status)
		}
	}
	granted += f[:1].take(t, "p", "alice", 4, (most-granted)/4+20)
	// What the last one has not used for a while goes back as well, and is granted when it asks again.
	eventually(t, "all permits are granted", func() bool {
		granted += f[:1].take(t, "p", "alice", 1, 1)
		return granted >= most
	})
	if granted += f[:1].take(t, "p", "alice", 1, 20); granted != most {
		t.Errorf("%d were granted, want %d", granted, most)
	}
}

const failing = `
policies:
  closed: {limit: 1/h, burst: 1000, key: client.ip, consistency: coherent}
  open: {limit: 1/h, burst: 3, consistency: coherent, fail: open}
  local: {limit: 1/h, burst: 90, consistency: coherent, fail: local}
  leased: {limit: 1/h, burst: 3200, consistency: leased, fail: open}
  unshared: {limit: 1/h, burst: 2}
rules:
  - {name: all, limits: closed}
`

// answersAs holds servers to what the policies of failing say while the store is gone.
func (f fleet) answersAs(t *testing.T, store string) {
	t.Helper()
	for i, s := range f {
		a, body := s.check(`{"policy":"closed","key":"k"}`)
		if a.status != http.StatusServiceUnavailable || !strings.Contains(body, `"reason":"unavailable"`) {
			t.Errorf("%s: closed: %d %s", store, a.status, body)
		}
		if a, body := s.do(http.MethodPost, "/v1/decide", `{"client":"192.0.2.1"}`); a.status != http.StatusServiceUnavailable {
			t.Errorf("%s: decide: %d %s", store, a.status, body)
		}
		for range 5 {
			if got := s.statusOf("open", "k", 1); got != http.StatusOK {
				t.Errorf("%s: open: %d", store, got)
			}
		}
		key := fmt.Sprint("mine", i)
		if got := []int{s.statusOf("unshared", key, 2), s.statusOf("unshared", key, 1)}; got[0] != 200 || got[1] != 429 {
			t.Errorf("%s: unshared: %d", store, got)
		}
	}
}

// lose ends the server of Redis when all servers know that there are three of them, which is what they go by from then on. One that
// looks when another is about to say again that it is alive counts it twice: then there is one more to begin with.
func (f fleet) lose(t *testing.T, redis *redisServer) {
	t.Helper()
	eventually(t, "three replicas are known when the store is gone", func() bool {
		for _, s := range f {
			eventually(t, "three replicas are known", func() bool { return s.store().Replicas == 3 })
		}
		redis.kill()
		known := true
		for _, s := range f {
			eventually(t, "the breaker is open", func() bool {
				_ = s.statusOf("closed", "x", 1)
				return s.store().Breaker.State != "closed"
			})
			known = known && s.store().Replicas == 3
		}
		if !known {
			redis.start()
		}
		return known
	})
}

// TestFleetWithoutStore: while the server of Redis is gone each policy answers as it says, and afterwards as before.
func TestFleetWithoutStore(t *testing.T) {
	redis := startRedis(t)
	f, _ := startFleet(t, redis.url(), failing)
	if got := f.take(t, "local", "before", 1, 1); got != 3 {
		t.Errorf("%d of 3 were granted", got)
	}
	f.lose(t, redis)
	f.answersAs(t, "killed")
	if got := f.take(t, "local", "alice", 2, 30); got != 90 { // 30 each
		t.Errorf("local: %d were granted without a store, want 90", got)
	}
	if got := f[0].auth(); got != http.StatusServiceUnavailable {
		t.Errorf("/v1/auth: %d", got)
	}

	redis.start()
	for _, s := range f {
		eventually(t, "the server is back", func() bool {
			got := s.store()
			return s.statusOf("closed", "y", 1) == http.StatusOK && got.Reached && got.Breaker.State == "closed"
		})
		s.logged("the store is unavailable")
		s.logged("the store is available again")
	}
	eventually(t, "/v1/auth lets requests pass", func() bool { return f[0].auth() == http.StatusOK })
	attempt := 0 // a connection may still find out that it has ended, which allows one request
	eventually(t, "an open policy refuses", func() bool {
		attempt++
		return f.take(t, "open", fmt.Sprint("new", attempt), 1, 2) == 3
	})
	// What was granted without the store is not granted once more.
	eventually(t, "the store knows what was granted without it", func() bool { return f.take(t, "local", "alice", 1, 1) == 0 })
}

// TestFleetStartsWithoutStore: servers start without a store, say so, and use it as soon as it is there.
func TestFleetStartsWithoutStore(t *testing.T) {
	redis := newRedis(t)
	f, _ := startFleet(t, redis.url(), failing)
	for _, s := range f {
		if text := strings.Join(s.lines, "\n"); !strings.Contains(text, "the store cannot be reached") || !strings.Contains(text, "connection refused") {
			t.Errorf("the log does not say why:\n%s", text)
		}
	}
	f.answersAs(t, "never started")
	if got := f.take(t, "local", "alice", 2, 20); got != 90 { // a third each, as the file says that there are three
		t.Errorf("local: %d were granted without a store, want 90", got)
	}
	if got := f[0].store(); got.Reached || !strings.Contains(got.Error, "connection refused") {
		t.Errorf("%+v", got)
	}
	redis.start()
	for _, s := range f {
		s.logged("the store is reached")
		eventually(t, "the server is there", func() bool { return s.statusOf("closed", "z", 1) == http.StatusOK })
	}
	if got := f.take(t, "local", "new", 2, 30); got != 90 {
		t.Errorf("%d of 90 were granted", got)
	}
}

// TestFleetSlowStore: a store that stops without a word holds a request no longer than its timeout, and then none at all, and it
// does not keep a server from ending.
func TestFleetSlowStore(t *testing.T) {
	redis := startRedis(t)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, "version: 1\nstore: {url: \""+redis.url()+"\", timeout: 300ms}\n"+failing)
	s := startServer(t, "--config", path, "--admin-rate", "10000/s")
	s.logged("msg=serving")
	eventually(t, "the store answers", func() bool { return s.statusOf("closed", "k", 1) == http.StatusOK })
	if err := redis.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the breaker is open", func() bool {
		if got := s.statusOf("closed", "k", 1); got != http.StatusServiceUnavailable {
			t.Errorf("status %d", got)
		}
		return s.store().Breaker.State == "open"
	})
	// Hardly any of the next ones asks the store, and waits for it. On a machine that stands still now and then it may be its turn more often.
	eventually(t, "the store is left alone", func() bool {
		before := s.store().Breaker
		for range 50 {
			if got := s.statusOf("open", "k", 1); got != http.StatusOK {
				t.Errorf("status %d", got)
			}
		}
		after := s.store().Breaker
		return after.Asked-before.Asked < 10 && after.FastFailed-before.FastFailed > 40
	})
	s.signal(syscall.SIGTERM)
	if status := s.wait(); status.ExitCode() != 0 { // as it would be when --shutdown-timeout has passed
		t.Errorf("%v after SIGTERM", status)
	}
}

// TestFleetReload: policies change while servers run, the store does not.
func TestFleetReload(t *testing.T) {
	redis := startRedis(t)
	f, path := startFleet(t, redis.url(), "policies:\n  p: {limit: 1/h, burst: 5, consistency: coherent}\n")
	if got := f.take(t, "p", "k", 1, 1); got != 3 {
		t.Errorf("%d of 3 were granted", got)
	}
	writeConfig(t, path, patient(redis.url())+"policies:\n  p: {limit: 1/h, burst: 10, consistency: leased}\n"+
		"  q: {limit: 1/h, burst: 2, consistency: coherent}\n")
	for _, s := range f {
		s.logged("configuration loaded")
	}
	if got := f.take(t, "q", "k", 1, 1); got != 2 {
		t.Errorf("%d of 2 were granted", got)
	}
	if got := f.take(t, "p", "k", 1, 5); got != 2 { // what was there before, and nothing more
		t.Errorf("%d of 2 were granted", got)
	}
	writeConfig(t, path, "version: 1\n\nstore: redis://127.0.0.1:1\npolicies:\n  q: {limit: 1/h, burst: 9, consistency: coherent}\n")
	for _, s := range f {
		s.logged("weir.yaml:3:1: store: cannot change while the server runs, other than policies and rules; restart the server")
		if got := s.statusOf("q", "other", 1); got != http.StatusOK && got != http.StatusTooManyRequests {
			t.Errorf("status %d", got)
		}
	}
}

// TestStoreFlag: --store takes the place of the store of the file.
func TestStoreFlag(t *testing.T) {
	redis := startRedis(t)
	path := filepath.Join(t.TempDir(), "weir.yaml")
	for _, store := range []string{"", "store: {url: redis://127.0.0.1:1, prefix: 'shop:', timeout: 1m}\n"} {
		writeConfig(t, path, "version: 1\n"+store+"policies:\n  p: {limit: 1/h, burst: 3, consistency: coherent}\n")
		var f fleet
		for range 2 {
			s := startServer(t, "--config", path, "--admin-rate", "10000/s", "--store", redis.url()+"/2")
			if line := s.logged("msg=serving"); !strings.Contains(line, "store="+redis.url()+"/2") {
				t.Error(line)
			}
			f = append(f, s)
		}
		if store == "" { // it has not the time that a busy machine needs
			eventually(t, "the store answers", func() bool { return f[0].store().Reached && f[1].statusOf("p", "k", 0) == http.StatusOK })
		} else if got := f.take(t, "p", "k", 1, 3); got != 3 {
			t.Errorf("%q: %d of 3 were granted", store, got)
		}
	}
}

// TestStoreMisuse: what cannot be used as a store ends the program with 2, and is told without a password.
func TestStoreMisuse(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	const policies = "policies:\n  p: {limit: 1/h, consistency: coherent}\n"
	writeConfig(t, path, "version: 1\n"+policies)
	for flag, want := range map[string]string{
		"127.0.0.1:6379":              `--store "127.0.0.1:6379": must be a URL such as redis://host:6379/0`,
		"http://u:hunter2@h":          `--store "http://u:xxxxx@h": must be a URL such as`,
		"redis://u:hunter2@h:6379/db": `--store "redis://u:xxxxx@h:6379/db": has a database that is not a number`,
	} {
		got := weir(t, nil, "serve", "--config", path, "--store", flag)
		if got.status != 2 || !strings.Contains(got.stderr, want) || strings.Count(got.stderr, "\n") != 1 || strings.Contains(got.stderr, "hunter2") {
			t.Errorf("%s: status %d, %s", flag, got.status, got.stderr)
		}
	}
	if got := weir(t, nil, "config", "check", "--store", "redis://u:hunter2@h/x", path); got.status != 2 || strings.Contains(got.stderr, "hunter2") {
		t.Errorf("status %d, %s", got.status, got.stderr)
	}
	if got := weir(t, nil, "config", "check", "--store", "redis://h", path); got.status != 0 || !strings.Contains(got.stdout, "shared p/1h (1/h, burst 1), coherent: exact") {
		t.Errorf("status %d, %s%s", got.status, got.stdout, got.stderr)
	}
	if got := weir(t, nil, "serve", "--store", "redis://h"); got.status != 2 || !strings.Contains(got.stderr, "--store needs --config") {
		t.Errorf("status %d, %s", got.status, got.stderr)
	}
	for store, want := range map[string]string{
		"":                                  "consistency: \"coherent\": needs a store, and the file has none",
		"store: redis://u:hunter2@h/x\n":    `store: "redis://u:xxxxx@h/x": has a database that is not a number`,
		"store: {url: redis://h, prfix: a}": `did you mean "prefix"?`,
	} {
		writeConfig(t, path, "version: 1\n"+strings.TrimSuffix(store, "\n")+"\n"+policies)
		for _, args := range [][]string{{"serve", "--http", "127.0.0.1:0", "--config", path}, {"config", "check", path}} {
			got := weir(t, nil, args...)
			if text := got.stdout + got.stderr; got.status != 2 || !strings.Contains(text, want) || strings.Contains(text, "hunter2") {
				t.Errorf("%q: status %d, %s", args, got.status, text)
			}
		}
	}
}

// TestStorePasswordIsNotShown: neither in the log, nor in the status, nor in an explanation.
func TestStorePasswordIsNotShown(t *testing.T) {
	redis := startRedis(t, "--requirepass", "correct-horse")
	t.Setenv("WEIR_TEST_PASSWORD", "correct-horse")
	for _, store := range []string{
		"url: 'redis://:correct-horse@" + redis.address() + "'", "url: 'redis://:${WEIR_TEST_PASSWORD}@" + redis.address() + "'",
		"url: " + redis.url() + ", password: correct-horse", "url: 'redis://:wrong-correct-horse@" + redis.address() + "'",
	} {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		writeConfig(t, path, "version: 1\nstore: {timeout: 1m, "+store+"}\npolicies:\n  p: {limit: 1/h, burst: 3, consistency: coherent}\n")
		s := startServer(t, "--config", path, "--admin-rate", "10000/s")
		s.logged("msg=serving")
		want := http.StatusOK
		if strings.Contains(store, "wrong") {
			want = http.StatusServiceUnavailable
		}
		if got := s.statusOf("p", "k"+store, 1); got != want {
			t.Errorf("%s: %d, want %d", store, got, want)
		}
		_, told := s.do(http.MethodGet, "/v1/status", "")
		_, explained := s.do(http.MethodPost, "/v1/explain", `{"client":"192.0.2.1"}`)
		writeConfig(t, path, "version: 1\nstore: redis://:correct-horse@127.0.0.1:1\npolicies:\n  p: {limit: 1/h, consistency: coherent}\n")
		s.logged("mistake")
		s.signal(os.Interrupt)
		s.wait()
		all := []string{told, explained, strings.Join(s.lines, "\n")}
		for _, args := range [][]string{{"config", "explain", path}, {"config", "check", path}, {"config", "check", "--json", path}} {
			got := weir(t, nil, args...)
			all = append(all, got.stdout, got.stderr)
		}
		if told := strings.Join(all, "\n"); strings.Contains(told, "correct-horse") {
			t.Errorf("%s: the password is shown:\n%s", store, told)
		}
	}
}
