package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/reflection/grpc_reflection_v1"
)

// TestInventory lists all that the program offers: commands with their flags, endpoints, pages, services, commands of RESP, and
// metrics. A line goes only when the thing is to go.
func TestInventory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, frontsConfig)
	s := startFronts(t, nil, "--config", path)
	var b strings.Builder
	section := func(title string, lines []string) {
		if len(lines) < 3 {
			t.Errorf("%s: only %q", title, lines)
		}
		fmt.Fprintf(&b, "# %s\n%s\n\n", title, strings.Join(lines, "\n"))
	}
	section("Commands and flags", offeredCommands(t))
	section("Endpoints", s.offeredEndpoints())
	section("Pages", s.offeredPages())
	section("gRPC services", s.offeredServices())
	section("RESP commands", s.offeredRESP())
	section("Metrics", offeredMetrics(t))
	golden(t, "inventory.txt", strings.TrimSuffix(b.String(), "\n"))
}

// offeredCommands are all commands, each with its flags, in their order.
func offeredCommands(t *testing.T) (lines []string) {
	t.Helper()
	flags := regexp.MustCompile(`(?m)^ {2}(?:-\w, )?(--[a-z0-9-]+.*)$`)
	for _, command := range commands(t) {
		name := strings.Join(append([]string{"weir"}, command.path...), " ")
		lines = append(lines, name)
		_, help, _ := strings.Cut(command.help.stdout, "\nUsage:\n")
		var own []string
		for _, m := range flags.FindAllStringSubmatch(help, -1) {
			own = append(own, name+" "+m[1])
		}
		slices.Sort(own)
		lines = append(lines, own...)
	}
	return lines
}

// offeredEndpoints are the operations of the document for programs.
func (s *allFronts) offeredEndpoints() (lines []string) {
	_, _, text := s.get("/openapi.json")
	var document struct {
		Paths map[string]map[string]any `json:"paths"`
	}
	if err := json.Unmarshal([]byte(text), &document); err != nil {
		s.t.Fatal(err)
	}
	for path, operations := range document.Paths {
		for method := range operations {
			lines = append(lines, path+" "+strings.ToUpper(method))
		}
	}
	slices.Sort(lines)
	return lines
}

// offeredPages are those that the document does not have, and the files of the dashboard, with their status and type.
func (s *allFronts) offeredPages() (lines []string) {
	paths := []string{"/", "/healthz", "/healthcheck", "/readyz", "/metrics", "/openapi.json", "/ui", "/v1/auth", "/v1/auth/nginx", "/v1/auth/envoy"}
	static := "internal/front/dashboard/static"
	err := filepath.WalkDir(static, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			paths = append(paths, "/ui"+filepath.ToSlash(strings.TrimSuffix(strings.TrimPrefix(path, static), "index.html")))
		}
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, path := range paths {
		status, kind, _ := s.get(path)
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("%s %d %s", path, status, kind)))
	}
	return lines
}

// get returns a page, its status and its type, without following redirects.
func (s *allFronts) get(path string) (status int, kind, text string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "http://"+s.address+path, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	kind, _, _ = strings.Cut(answer.Header.Get("Content-Type"), ";")
	return answer.StatusCode, kind, string(body)
}

// offeredServices are the methods of all gRPC services.
func (s *allFronts) offeredServices() (lines []string) {
	stream, err := grpc_reflection_v1.NewServerReflectionClient(s.dial()).ServerReflectionInfo(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	err = stream.Send(&grpc_reflection_v1.ServerReflectionRequest{
		MessageRequest: &grpc_reflection_v1.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, service := range answer.GetListServicesResponse().GetService() {
		lines = append(lines, service.GetName())
	}
	slices.Sort(lines)
	return lines
}

// offeredRESP are the commands of RESP with how many arguments they have, and their subcommands.
func (s *allFronts) offeredRESP() (lines []string) {
	known, err := s.redis().Command(s.t.Context()).Result()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		lines = append(lines, fmt.Sprintf("%s %d", name, known[name].Arity))
		if answer, err := s.redis().Do(s.t.Context(), name, "HELP").StringSlice(); err == nil {
			for _, line := range answer {
				lines = append(lines, strings.TrimRight("  "+line, " "))
			}
		}
	}
	return lines
}

// offeredMetrics are the names in docs/metrics.md, whose tables are compared with the metrics themselves.
func offeredMetrics(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?m)^\\| `(?:weir|process|go)[_.][a-z0-9_.{}, ]+`").FindAllString(string(text), -1)
	for i, line := range lines {
		lines[i] = strings.Trim(line, "|` ")
	}
	slices.Sort(lines)
	return slices.Compact(lines)
}
