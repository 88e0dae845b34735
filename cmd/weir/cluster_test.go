package main_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// durableStatus is what GET /v1/status says of the cluster.
type durableStatus struct {
	Address string `json:"address"`
	Joined  bool   `json:"joined"`
	Error   string `json:"error"`
	Owns    bool   `json:"owns"`
	Owner   string `json:"owner"`
	Epoch   int64  `json:"epoch"`
	Owned   struct {
		WaitingRequests int64 `json:"waiting_requests"`
		GrantedPermits  int64 `json:"granted_permits"`
	} `json:"owned"`
}

func (s *server) cluster() durableStatus {
	s.t.Helper()
	var status struct {
		Cluster durableStatus `json:"cluster"`
	}
	r, body := s.do(http.MethodGet, "/v1/status", "")
	if err := json.Unmarshal([]byte(body), &status); err != nil || r.status != http.StatusOK {
		s.t.Fatalf("%v: %d %s", err, r.status, body)
	}
	return status.Cluster
}

const durablePolicies = `
policies:
  tenant-month:
    limits: [{algorithm: calendar-window, permits: 1_000_000, every: month}]
    durability: cluster
  hour: {limit: 1/h, burst: 40, durability: cluster}
  waiting: {limit: 1/h, burst: 1, durability: cluster, queue: {limit: 1, max_wait: 1h}}
  open: {limit: 1/h, burst: 1, durability: cluster, fail: open}
  two: {limits: [{rate: 1/h, burst: 10}, {rate: 100/h}], durability: cluster}
  memory: {limit: 1/h, burst: 5}
rules:
  - {name: all, limits: [tenant-month, hour, waiting, open, two, memory]}
`

// used is how many permits of the month of a key were used.
func (s *server) used(key string) (used, remaining int64) {
	s.t.Helper()
	var q struct {
		Limits []struct {
			Permits   int64 `json:"permits"`
			Used      int64 `json:"used"`
			Remaining int64 `json:"remaining"`
			Reserved  int64 `json:"reserved"`
		} `json:"limits"`
	}
	if err := json.Unmarshal([]byte(s.quota("show", "--policy", "tenant-month", "--key", key, "--json")), &q); err != nil {
		s.t.Fatal(err)
	}
	if len(q.Limits) != 1 || q.Limits[0].Used+q.Limits[0].Remaining+q.Limits[0].Reserved != q.Limits[0].Permits {
		s.t.Fatalf("%+v", q)
	}
	return q.Limits[0].Used, q.Limits[0].Remaining
}

// owns waits until a server owns the limits.
func owns(t *testing.T, s *server) *server {
	t.Helper()
	eventually(t, "the server owns the limits", func() bool { return s.cluster().Owns })
	return s
}

// TestOneNodeKeepsCounts: a month's quota, and its adjustments, survive kill -9, and a restart in order loses nothing.
func TestOneNodeKeepsCounts(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, "version: 1\ncluster: {directory: data, reserve: 1}\n"+durablePolicies)
	s := owns(t, startServer(t, "--config", path, "--admin-rate", "10000/s"))
	if line := s.logged("msg=serving"); !strings.Contains(line, "cluster="+filepath.Join(filepath.Dir(path), "data")) {
		t.Error(line)
	}
	var known tally
	for range 3 {
		known.charge(t, s, "acme", 1000)
	}
	text := known.adjust(t, s, "acme", 500, "--by", "billing", "--reason", "refund of order 17")
	adjusted := known.least == known.most // at once
	if adjusted && text != "500 permits given back to tenant-month/month of acme: 997,500 remain\n" {
		t.Error(text)
	}
	for _, end := range []os.Signal{syscall.SIGKILL, syscall.SIGKILL, syscall.SIGTERM} {
		s.signal(end)
		s.wait()
		if end == syscall.SIGTERM { // what follows is about one term of an owner, however slow the machine is
			writeConfig(t, path, "version: 1\ncluster: {directory: data, reserve: 1, ttl: 5m}\n"+durablePolicies)
		}
		s = owns(t, startServer(t, "--config", path, "--admin-rate", "10000/s"))
		if used, remaining := s.used("acme"); !known.has(used) || remaining != 1_000_000-used {
			t.Errorf("after %v: %d were used, %d remain, want %+v", end, used, remaining, known)
		}
		known.charge(t, s, "acme", 1)
	}
	history := s.quota("history", "--policy", "tenant-month", "--key", "acme")
	if !strings.Contains(history, "+500") || !strings.Contains(history, "billing  refund of order 17\n") ||
		adjusted && strings.Count(history, "\n") != 2 {
		t.Error(history)
	}
	if got := s.quota("history", "--policy", "tenant-month", "--key", "other"); got != "tenant-month of other was never adjusted\n" {
		t.Error(got)
	}

	// The server cannot have another cluster without a restart, and says so.
	writeConfig(t, path, "version: 1\ncluster: {directory: data, reserve: 2, ttl: 5m}\n"+durablePolicies)
	s.logged("weir.yaml:2:1: cluster: cannot change while the server runs, other than policies and rules; restart the server")

	s.misusedQuotas(t)
	s.endsWhileOthersWait(t)
}

// misusedQuotas asks what cannot be answered.
func (s *server) misusedQuotas(t *testing.T) {
	t.Helper()
	at := "http://" + s.address
	for want, args := range map[string][]string{
		`policy "memory": its durability is memory; must be a policy of durability cluster`: {"show", "--policy", "memory", "--server", at},
		`policy "tenant": there is no such policy; must be one of: tenant-month, hour`:      {"show", "--policy", "tenant", "--server", at},
		`policy "two/x": there is no such limit; must be one of: two/1h`:                    {"show", "--policy", "two/x", "--server", at},
		`policy "two": it has several limits; must be one of: two/1h`: {
			"adjust", "--policy", "two", "--permits", "1", "--reason", "r", "--server", at,
		},
		`--permits "0": must be a whole number other than 0`: {"adjust", "--policy", "hour", "--permits", "0", "--reason", "r"},
		`needs --reason`:                                   {"adjust", "--policy", "hour", "--permits", "1"},
		`needs --policy`:                                   {"history"},
		`--server "here": must be a URL`:                   {"show", "--policy", "hour", "--server", "here"},
		`quota has no command "shw"; did you mean "show"?`: {"shw"},
	} {
		if got := weir(t, nil, append([]string{"quota"}, args...)...); got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %d %s", args, got.status, got.stderr)
		}
	}
	if got := weir(t, nil, "quota", "show", "--policy", "hour", "--server", "http://127.0.0.1:1"); got.status != 1 ||
		!strings.Contains(got.stderr, "is not reachable: ") {
		t.Errorf("%d %s", got.status, got.stderr)
	}
	for path, want := range map[string]int{
		"/v1/quota": 400, "/v1/quota?policy=hour&k=a": 400, "/v1/quota?policy=hour&policy=two": 400,
		"/v1/quota/adjustments?policy=hour&limit=0": 400, "/v1/quota/adjustments?policy=hour&limit=1001": 400,
		"/v1/quota?policy=hour": 200, "/v1/quota?policy=memory": 422,
	} {
		if got, body := s.do(http.MethodGet, path, ""); got.status != want {
			t.Errorf("%s: %d %s", path, got.status, body)
		}
	}
	for body, want := range map[string]int{
		`{"policy":"hour","permits":1.5,"by":"a","reason":"b"}`: 400, `{"policy":"hour","permits":1,"by":"","reason":"b"}`: 400,
		`{"policy":"hour","permits":1,"by":"a","reason":"b","x":1}`: 400, `{"policy":"memory","permits":1,"by":"a","reason":"b"}`: 422,
	} {
		if got, text := s.do(http.MethodPost, "/v1/quota/adjust", body); got.status != want {
			t.Errorf("%s: %d %s", body, got.status, text)
		}
	}
}

// endsWhileOthersWait ends a server while requests wait for its limits: they are answered at once.
func (s *server) endsWhileOthersWait(t *testing.T) {
	t.Helper()
	if got := s.statusOf("waiting", "k", 1); got != http.StatusOK {
		t.Fatal(got)
	}
	answers := make(chan string, 2)
	for range 2 {
		go func() {
			a, body := s.check(`{"policy":"waiting","key":"k","wait":3600}`)
			answers <- fmt.Sprint(a.status, " ", body)
		}()
	}
	if got := <-answers; !strings.HasPrefix(got, "429 ") || !strings.Contains(got, `"reason":"queue-full"`) {
		t.Errorf("who finds no room in the queue: %s", got)
	}
	eventually(t, "somebody waits", func() bool { return s.cluster().Owned.WaitingRequests == 1 })
	s.signal(syscall.SIGTERM)
	if got := <-answers; !strings.HasPrefix(got, "503 ") || !strings.Contains(got, `"reason":"closed"`) {
		t.Errorf("who waits while the server ends: %s", got)
	}
	if status := s.wait(); status.ExitCode() != 0 {
		t.Error(status)
	}
}

// startCluster starts three servers with an etcd in each.
func startCluster(t *testing.T, policies string) fleet {
	t.Helper()
	base := 10 * tens(t)
	var f fleet
	for n := 1; n <= 3; n++ {
		path := filepath.Join(t.TempDir(), "weir.yaml")
		writeConfig(t, path, fmt.Sprintf("version: 1\ncluster:\n  directory: data\n  reserve: 1\n  name: n%d\n  peers: {n1: 'http://127.0.0.1:%d', "+
			"n2: 'http://127.0.0.1:%d', n3: 'http://127.0.0.1:%d'}\n  address: 127.0.0.1:%d\n%s", n, base+1, base+2, base+3, base+10+n, policies))
		f = append(f, startServer(t, "--config", path, "--admin-rate", "10000/s", "--shutdown-timeout", "2m"))
		if n == 1 {
			f[0].servesAlone(t)
		}
	}
	return f
}

// servesAlone shows that one of three, which has no majority, serves all the same.
func (s *server) servesAlone(t *testing.T) {
	t.Helper()
	if got := s.statusOf("hour", "early", 1); got != http.StatusServiceUnavailable {
		t.Errorf("closed: %d", got)
	}
	if got := s.statusOf("open", "early", 1); got != http.StatusOK {
		t.Errorf("open: %d", got)
	}
	if got := s.statusOf("memory", "early", 1); got != http.StatusOK {
		t.Errorf("memory: %d", got)
	}
	if got := s.cluster(); got.Joined || got.Error == "" {
		t.Errorf("%+v", got)
	}
	got := weir(t, nil, "quota", "show", "--policy", "hour", "--key", "early", "--server", "http://"+s.address)
	if got.status != 1 || !strings.Contains(got.stderr, "unavailable") {
		t.Errorf("%d %s", got.status, got.stderr)
	}
}

// owner is the node that owns the limits, and the others; it waits until all of them know.
func (f fleet) owner(t *testing.T) (owner *server, others fleet) {
	t.Helper()
	eventually(t, "everybody knows the owner", func() bool {
		owner, others = nil, nil
		for _, s := range f {
			got := s.cluster()
			switch {
			case got.Owner == "":
				return false
			case got.Owns:
				owner = s
			default:
				others = append(others, s)
			}
		}
		return owner != nil && len(others) == len(f)-1
	})
	return owner, others
}

// startAgain starts a server that has ended.
func startAgain(t *testing.T, s *server) *server {
	t.Helper()
	return start(t, s.cmd.Args[1:]...)
}

// TestThreeNodes: three servers have one limit, which is exact. When the owner ends, or is killed, another one goes on and grants
// nothing twice. A node that was away comes back, and any node adjusts.
func TestThreeNodes(t *testing.T) {
	t.Parallel()
	f := startCluster(t, durablePolicies)
	first, rest := f.owner(t)
	start := time.Now()
	first.signal(syscall.SIGTERM)
	rest.owner(t)
	t.Logf("another node owned the limits %v after SIGTERM", time.Since(start))
	if status := first.wait(); status.ExitCode() != 0 {
		t.Error(status)
	}
	f = slices.Concat(rest, fleet{startAgain(t, first)})
	owner, others := f.owner(t)
	var known tally
	known.charge(t, others[0], "acme", 1000)
	known.adjust(t, others[0], "acme", -50, "--by", "b", "--reason", "r")
	if used, _ := owner.used("acme"); !known.has(used) {
		t.Errorf("%d were used, want %+v", used, known)
	}

	next, follower := takenOver(t, owner, others)
	if used, _ := follower.used("acme"); !known.has(used) {
		t.Errorf("%d were used, want %+v", used, known)
	}
	if history := follower.quota("history", "--policy", "tenant-month", "--key", "acme"); !strings.Contains(history, "b   r\n") {
		t.Error(history)
	}
	eventually(t, "who has taken over says so", func() bool { got := next.cluster(); return got.Epoch > 1 && got.Joined })
}

// takenOver kills the owner while all ask for permits of an hour, and returns the next one and the nodes that are left: no more
// are granted than there are.
func takenOver(t *testing.T, owner *server, others fleet) (next, follower *server) {
	t.Helper()
	const all, some = 40, 20
	var (
		granted atomic.Int64
		over    atomic.Bool
		work    sync.WaitGroup
	)
	half, killed := make(chan struct{}), make(chan struct{})
	for _, s := range others {
		work.Go(func() {
			for n := 0; (n < 30 || granted.Load() < some) && !over.Load(); n++ {
				if s.statusOf("hour", "k", 1) == http.StatusOK && granted.Add(1) == some {
					close(half)
					<-killed
				}
			}
		})
	}
	select {
	case <-half:
	case <-time.After(2 * time.Minute):
		over.Store(true)
		work.Wait()
		t.Fatalf("only %d were granted", granted.Load())
	}
	start := time.Now()
	owner.signal(syscall.SIGKILL)
	owner.wait()
	close(killed)
	next, rest := others.owner(t)
	t.Logf("another node owned the limits %v after kill -9", time.Since(start))
	work.Wait()
	granted.Add(others.exhaust(t, "hour", "k"))
	if n := granted.Load(); n > all || n < some {
		t.Errorf("%d of %d were granted", n, all)
	}
	t.Logf("%d of %d were granted around kill -9", granted.Load(), all)
	return next, rest[0]
}

// TestClusterMisuse: what cannot be meant ends the program with 2.
func TestClusterMisuse(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "weir.yaml")
	writeConfig(t, filepath.Join(dir, "file"), "no certificate")
	const external = "{endpoints: ['https://127.0.0.1:1'], address: '127.0.0.1:1', "
	for cluster, want := range map[string]string{
		"":                                  `durability`,
		"cluster: {directory: file/data}\n": "not a directory",
		"cluster: {directory: data, endpoints: ['http://127.0.0.1:1']}\n": "weir.yaml:2:",
		"cluster: {directory: data, peers: {a: 'http://127.0.0.1:1'}}\n":  "weir.yaml:2:",
		"cluster: " + external + "ca_file: missing.pem}\n":                "ca_file: open " + filepath.Join(dir, "missing.pem"),
		"cluster: " + external + "ca_file: file}\n":                       "has no certificate in the form of PEM",
		"cluster: " + external + "cert_file: file, key_file: file}\n":     "cannot be used together",
		"cluster: " + external + "cert_file: file}\n":                     "key_file",
		"cluster: {directory: data, ttl: 10ms}\n":                         "ttl",
		"cluster: {directory: data, reserve: 0}\n":                        "reserve",
		"cluster: {directory: data, endpoint: 'http://127.0.0.1:1'}\n":    `cluster.endpoint: unknown key`,
	} {
		writeConfig(t, path, "version: 1\n"+cluster+"policies:\n  p: {limit: 1/h, durability: cluster}\nrules:\n  - {name: r, limits: p}\n")
		got := weir(t, nil, "serve", "--http", "127.0.0.1:0", "--config", path)
		if got.status != 2 || !strings.Contains(got.stderr, want) {
			t.Errorf("%s: %d %s", cluster, got.status, got.stderr)
		}
	}
}
