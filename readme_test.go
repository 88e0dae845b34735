package weir_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/httplimit"
)

var errTooManyRequests = errors.New("too many requests")

// The functions below are the Go code of the README.

func readmeLibrary(ctx context.Context, job func() error) error {
	limiter, err := weir.New(weir.TokenBucket(weir.PerSecond(10), 20), weir.Options{QueueLimit: 100})
	if err != nil {
		return err // names the option, its value and the range
	}
	if !limiter.Allow() { // never waits
		return errTooManyRequests
	}
	err = limiter.Wait(ctx, 5) // in order; fails at once if the deadline or the queue does not permit it
	if err != nil {
		return err
	}
	workers, err := weir.NewConcurrency(4, weir.Options{QueueLimit: 100})
	if err != nil {
		return err
	}
	return workers.Do(ctx, 1, job) // holds a permit while job runs
}

type completion struct{ TokensUsed int64 }

type languageModel struct{ used int64 }

func (m languageModel) Complete(_ context.Context, prompt string) (completion, error) {
	if prompt == "" {
		return completion{}, errors.New("empty prompt")
	}

	return completion{m.used}, nil
}

func readmeReserve(ctx context.Context, tokensPerMinute *weir.Limiter, model languageModel, estimate int64, prompt string) error {
	lease := tokensPerMinute.TryReserve(estimate)
	if d := lease.Decision(); !d.Allowed {
		return fmt.Errorf("come back in %v", d.RetryAfter)
	}
	answer, err := model.Complete(ctx, prompt)
	if err != nil {
		lease.Cancel()
		return err
	}
	lease.Commit(answer.TokensUsed) // less is refunded, more is owed

	return nil
}

func readmeHTTP(mux *http.ServeMux) error {
	perClient, err := weir.NewKeyed[string](weir.TokenBucket(weir.PerSecond(10), 20), weir.KeyedOptions{Name: "per-client"})
	if err != nil {
		return err
	}
	limit, err := httplimit.New(httplimit.Options{Keyed: perClient})
	if err != nil {
		return err
	}
	return http.ListenAndServe(":8080", limit(mux))
}

// TestReadmeCode runs the Go code of the README, and holds the README to it.
func TestReadmeCode(t *testing.T) {
	_ = readmeHTTP // listens for ever

	if err := readmeLibrary(t.Context(), func() error { return nil }); err != nil {
		t.Error(err)
	}

	synctest.Test(t, func(t *testing.T) {
		b, err := weir.New(weir.TokenBucket(weir.PerMinute(1000), 0), weir.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			prompt    string
			used      int64
			ok        bool
			available int64
		}{
			{"a short question", 300, true, 700},
			{"", 0, false, 700},
			{"a long question", 900, true, 0}, // 200 are owed
			{"another", 100, false, 0},
		} {
			err := readmeReserve(t.Context(), b, languageModel{c.used}, 500, c.prompt)
			if available := b.Stats().Available; (err == nil) != c.ok || available != c.available {
				t.Errorf("%q: %v, %d available, want %d", c.prompt, err, available, c.available)
			}
		}
	})

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("readme_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code := lines(string(source))
	blocks := strings.Split(string(readme), "```go\n")[1:]
	if len(blocks) != 3 {
		t.Errorf("the README has %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		block, _, _ = strings.Cut(block, "```")
		for _, line := range lines(block) {
			if !slices.Contains(code, line) {
				t.Errorf("this line of the README is not in a test: %s", line)
			}
		}
	}
}

// lines are the lines of text without indentation.
func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}

	return all
}
