package recipes_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/examples/recipes"
	"github.com/weirhq/weir/httplimit"
)

var ok = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})

// answer is the status that a request gets.
func answer(t *testing.T, h http.Handler, form url.Values, header string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	if header != "" {
		r.Header.Set("X-Api-Key", header)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

// TestLogin fails at one account until it is locked out, for a day. Logins that succeed do not count, and neither does another
// account.
func TestLogin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, err := recipes.Login(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.PostForm.Get("password") == "right" {
				httplimit.Reservation(r.Context()).Cancel()
				return
			}
			w.WriteHeader(http.StatusUnauthorized)
		}))
		if err != nil {
			t.Fatal(err)
		}
		login := func(account, password string, want int) {
			t.Helper()
			if got := answer(t, h, url.Values{"account": {account}, "password": {password}}, "").Code; got != want {
				t.Errorf("%s with the %s password: %d, want %d", account, password, got, want)
			}
		}
		for range 5 {
			login("Alice", "right", http.StatusOK)
			login("alice", "wrong", http.StatusUnauthorized)
			login("bob", "right", http.StatusOK)
		}
		login("alice", "right", http.StatusTooManyRequests)
		time.Sleep(23 * time.Hour)
		login("alice", "right", http.StatusTooManyRequests)
		login("bob", "right", http.StatusOK)
		time.Sleep(time.Hour)
		login("alice", "right", http.StatusOK)
	})
}

// TestPerPlan asks with keys of different plans, and without a key.
func TestPerPlan(t *testing.T) {
	plans := map[string]string{"p": "pro", "t": "team"}
	h, err := recipes.PerPlan(ok, func(key string) string { return plans[key] })
	if err != nil {
		t.Fatal(err)
	}
	for key, policy := range map[string]string{"p": "q=50;", "t": "q=500;", "f": "q=10;"} {
		got := answer(t, h, nil, key)
		if told := got.Header().Get("Ratelimit") + got.Header().Get("Ratelimit-Policy"); got.Code != http.StatusOK || !strings.Contains(told+";", policy) {
			t.Errorf("key %q: %d %s, want %s", key, got.Code, told, policy)
		}
	}
	if got := answer(t, h, nil, ""); got.Code != http.StatusUnauthorized {
		t.Errorf("without a key: %d", got.Code)
	}
}

// TestComplete reserves 1000 tokens of 1000 and uses 100, so that the next call need not wait.
func TestComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tokens, err := recipes.TokensPerMinute(1000)
		if err != nil {
			t.Fatal(err)
		}
		failure := errors.New("no answer")
		for _, c := range []struct {
			most, used int64
			err        error
			available  int64
		}{{1000, 100, nil, 900}, {900, 0, failure, 900}, {500, 1000, nil, 0}} {
			err := recipes.Complete(t.Context(), tokens, c.most, func(context.Context) (int64, error) { return c.used, c.err })
			if available := tokens.Stats().Remaining; !errors.Is(err, c.err) || available != c.available {
				t.Errorf("%+v: %v, %d available", c, err, available)
			}
		}
		if err := recipes.Complete(t.Context(), tokens, 1001, nil); !errors.Is(err, weir.ErrRefused) {
			t.Errorf("more than there ever is: %v", err)
		}
	})
}

// TestWebhooks sends two requests to a host, the second of which waits.
func TestWebhooks(t *testing.T) {
	client, err := recipes.Webhooks()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(ok)
	defer server.Close()
	begin := time.Now()
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	if took := time.Since(begin); took < 190*time.Millisecond {
		t.Errorf("two requests took %v", took)
	}
}

// TestRunAll runs 10 jobs, of which never more than 3 run at a time.
func TestRunAll(t *testing.T) {
	var running, most, done atomic.Int64
	failure := errors.New("a job that fails")
	jobs := make([]func() error, 10)
	for i := range jobs {
		jobs[i] = func() error {
			if now := running.Add(1); now > most.Load() {
				most.Store(now)
			}
			defer running.Add(-1)
			if done.Add(1) == 5 {
				return failure
			}
			return nil
		}
	}
	if err := recipes.RunAll(t.Context(), 3, jobs); !errors.Is(err, failure) || done.Load() != 10 || most.Load() > 3 {
		t.Errorf("%v: %d jobs, %d at a time", err, done.Load(), most.Load())
	}
}

// TestDocsShowTheRecipes compares the Go code of docs/recipes.md with these files, and builds the files outside of the repository.
func TestDocsShowTheRecipes(t *testing.T) {
	page, err := os.ReadFile("../../docs/recipes.md")
	if err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var all strings.Builder
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		all.Write(source)
		if err := os.WriteFile(filepath.Join(dir, name), source, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	blocks := strings.Split(string(page), "\n```go\n")[1:]
	for _, block := range blocks {
		code, _, _ := strings.Cut(block, "```")
		if !strings.Contains(all.String(), code) {
			t.Errorf("this is in no file of examples/recipes:\n%s", code)
		}
	}
	if len(blocks) != 7 {
		t.Errorf("docs/recipes.md has %d blocks of Go", len(blocks))
	}
	mod := "module example.com/recipes\n\ngo 1.26.0\n\nrequire github.com/weirhq/weir v0.0.0\n\nreplace github.com/weirhq/weir => " + root + "\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "go", "build", ".")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("outside of the repository: %v\n%s", err, out)
	}
}

// TestTenants has 120 jobs of two tenants, a second each, for two workers. A third tenant waits for six of them, and the one whose share
// is twice as large gets twice as much.
func TestTenants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tenants, err := recipes.NewTenants(2, func(tenant string) int64 {
			if tenant == "paid" {
				return 4
			}
			return 0
		})
		if err != nil {
			t.Fatal(err)
		}
		done := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		run := func(tenant string, jobs int) {
			for range jobs {
				all.Go(func() {
					err := tenants.Do(t.Context(), tenant, func() error {
						time.Sleep(time.Second)
						mu.Lock()
						defer mu.Unlock()
						done[tenant]++
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				})
			}
			synctest.Wait()
		}
		run("free", 100)
		run("paid", 20)
		begin := time.Now()
		if err := tenants.Do(t.Context(), "single", func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		// Two jobs of the first tenant run, and four of the second are next in line.
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("it waited for %v", took)
		}
		time.Sleep(9*time.Second + time.Millisecond)
		synctest.Wait()
		mu.Lock()
		if done["paid"] != 2*done["free"] {
			t.Errorf("after 12 s: %v", done)
		}
		mu.Unlock()
		all.Wait()
		if done["free"] != 100 || done["paid"] != 20 {
			t.Errorf("in the end: %v", done)
		}
	})
}

// inMemory sends requests to a handler.
type inMemory struct{ http.Handler }

func (m inMemory) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	return w.Result(), nil
}

// TestEgress has three processes that send 100 requests together to a server that allows 20 and 10 more each second, as it says. None is
// refused, and all take as long as the limit makes them. With a transport for each process some are refused. A request that would wait
// for too long is told when to come back.
func TestEgress(t *testing.T) {
	api := &url.URL{Scheme: "https", Host: "api.example"}
	for _, shared := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			var refused atomic.Int64
			bucket, err := weir.New(weir.TokenBucket(weir.PerSecond(10), 20), weir.Options{Name: "api"})
			if err != nil {
				t.Fatal(err)
			}
			limit, err := httplimit.New(httplimit.Options{
				Limiter: bucket, OnRefused: func(*http.Request, *httplimit.Refusal) { refused.Add(1) },
			})
			if err != nil {
				t.Fatal(err)
			}
			egress := func() http.Handler {
				h, err := recipes.Egress(api, inMemory{limit(ok)})
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			through := egress()
			begin := time.Now()
			var all sync.WaitGroup
			for i := range 3 {
				process := through
				if !shared {
					process = egress()
				}
				all.Go(func() {
					for n := i; n < 100; n += 3 {
						if w := answer(t, process, nil, ""); shared && w.Code != http.StatusOK {
							t.Errorf("%d %v", w.Code, w.Header())
						}
					}
				})
			}
			all.Wait()
			if took := time.Since(begin); shared && (refused.Load() != 0 || took < 8*time.Second || took > 12*time.Second) || !shared && refused.Load() == 0 {
				t.Errorf("shared %v: %d refused, in %v", shared, refused.Load(), took)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		h, err := recipes.Egress(api, inMemory{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "60")
			w.WriteHeader(http.StatusTooManyRequests)
		})})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			if w := answer(t, h, nil, ""); w.Code != want || w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %v, want %d", w.Code, w.Header(), want)
			}
		}
	})
}
