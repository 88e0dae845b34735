package grpclimit_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/grpclimit"
)

// docsBlocks are the code blocks of docs/grpc.md by language.
func docsBlocks(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../docs/grpc.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]string{}
	parts := strings.Split(string(text), "\n```")
	for i := 1; i < len(parts); i += 2 {
		language, block, _ := strings.Cut(parts[i], "\n")
		blocks[language] = append(blocks[language], block+"\n")
	}
	return blocks
}

func unindented(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "\n")
}

// TestDocsShowCodeThatRuns looks for the lines of each Go block of docs/grpc.md in the examples.
func TestDocsShowCodeThatRuns(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	code, blocks := unindented(string(source)), docsBlocks(t)["go"]
	if len(blocks) < 5 {
		t.Fatalf("docs/grpc.md shows %d blocks of Go", len(blocks))
	}
	for _, block := range blocks {
		if !strings.Contains(code, unindented(block)) {
			t.Errorf("no example has the lines\n%s", block)
		}
	}
}

// TestDocsShowATrueRefusal compares the refusal that docs/grpc.md shows with that of a server.
func TestDocsShowATrueRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := setup{server: limited(t, grpclimit.ServerOptions{
			Keyed: keyed(t, weir.TokenBucket(weir.PerHour(10), 2), weir.KeyedOptions{Name: "per-client"}),
		})}.dial(t)
		var (
			trailer metadata.MD
			err     error
		)
		for range 3 {
			err = call(t.Context(), client, grpc.Trailer(&trailer))
		}
		delay, violations := details(err)
		st := status.Convert(err)
		if len(violations) != 1 || violations[0].GetDescription() != st.Message() {
			t.Fatalf("the violations are %v", violations)
		}
		text := fmt.Sprintf("code: %v\nmessage: %s\nRetryInfo: retry_delay %v\nQuotaFailure: subject %q, description as the message\n"+
			"trailer: grpc-retry-pushback-ms %s\n", st.Code(), st.Message(), delay.Round(time.Nanosecond),
			violations[0].GetSubject(), strings.Join(trailer["grpc-retry-pushback-ms"], " "))
		if !slices.Contains(docsBlocks(t)["text"], text) {
			t.Errorf("docs/grpc.md does not show\n%s", text)
		}
	})
}
