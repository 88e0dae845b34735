package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/config"
)

// The pages whose commands the tests of this file run.
const readmePage, tourPage = "../../README.md", "../../docs/tour.md"

// step is a command that a page shows, with its output.
type step struct{ command, output string }

func stepsOf(t *testing.T, page string) []step {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	for _, block := range strings.Split(string(text), "```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, threeNodes) {
			continue // TestTourThreeNodes runs it
		}
		for _, part := range strings.Split("\n"+block, "\n$ ")[1:] {
			command, output, _ := strings.Cut(part, "\n")
			steps = append(steps, step{command, output})
		}
	}
	return steps
}

// TestReadme runs the session of the README, and compares the output of every command.
func TestReadme(t *testing.T) {
	const address = "127.0.0.1:7070"
	const attempts = 30 // as permits come back while a machine stands still
	s := startServer(t)
	refusal := ""        // the last one
	var curls [][]string // what curl was given so far
	kinds := map[string]int{}
	for _, step := range stepsOf(t, readmePage) {
		args := shellWords(step.command)
		kinds[strings.Join(args[:2], " ")]++
		var got string
		switch {
		case args[0] == "curl":
			curls = append(curls, args[1:])
			got = curl(t, s.address, address, args[1:])
			for attempt := 0; still(got) != still(step.output) && attempt < attempts && kinds["weir why"] == 0; attempt++ {
				s = startServer(t)
				for _, given := range curls {
					got = curl(t, s.address, address, given)
				}
			}
			if id := refusalLine.FindStringSubmatch(got); id != nil {
				refusal = id[1]
			}
		case strings.HasPrefix(step.command, "weir why ") && strings.HasSuffix(step.command, " | head -5"):
			got = why(t, s, refusal)
		case strings.HasPrefix(step.command, "weir admin "):
			out, err := command(t, append(args[1:], "--server", "http://"+s.address)...).Output()
			if err != nil {
				t.Fatalf("%s: %v", step.command, err)
			}
			got = string(out)
		default:
			t.Errorf("the test does not know how to run %q", step.command)
			continue
		}
		if still(got) != still(step.output) {
			t.Errorf("%s\nprints\n%s\nbut the README says\n%s", step.command, got, step.output)
		}
	}
	if kinds["curl -d"] != 2 || kinds["curl -i"] != 1 || kinds["weir why"] != 1 || kinds["weir admin"] != 2 {
		t.Errorf("the README shows other commands: %v", kinds)
	}
}

// TestTour runs every command of docs/tour.md whose output it shows.
func TestTour(t *testing.T) {
	const attempts = 30 // as permits come back while a machine stands still
	kinds := map[string]int{}
	background := map[string]*server{} // by the address in the page
	var redis *redisServer             // that the page takes for granted
	var fronts *allFronts              // that redis-cli asks
	var asked [][]string               // what redis-cli was given so far
	for _, step := range stepsOf(t, tourPage) {
		args := shellWords(step.command)
		kinds[args[0]]++
		var got string
		switch {
		case args[0] == "for":
			got = curlLoop(t, background, step.command)
			for attempt := 0; still(got) != still(step.output) && attempt < attempts; attempt++ {
				got = curlLoop(t, background, strings.Replace(step.command, "alice", fmt.Sprint("alice", attempt), 1))
			}
		case strings.HasPrefix(step.command, "weir serve --resp ") && args[len(args)-1] == "&":
			fronts = startFronts(t, nil)
		case args[0] == "redis-cli":
			asked = append(asked, args)
			got = redisCLI(t, fronts, args)
			for attempt := 0; still(got) != still(step.output) && attempt < attempts; attempt++ {
				fronts = startFronts(t, nil)
				for _, given := range asked {
					got = redisCLI(t, fronts, given)
				}
			}
		case strings.HasPrefix(step.command, "weir serve ") && args[len(args)-1] == "&":
			if redis == nil {
				redis = startRedis(t)
			}
			background[args[5]] = serveInBackground(t, redis, args)
		case args[0] == "weir":
			got = runInRoot(t, step.command, nil)
		default:
			t.Errorf("the test does not know how to run %q", step.command)
			continue
		}
		if still(got) != still(step.output) {
			t.Errorf("%s\nprints\n%s\nbut docs/tour.md says\n%s", step.command, got, step.output)
		}
	}
	if kinds["weir"] < 7 || kinds["redis-cli"] < 2 || kinds["for"] != 1 || len(background) != 3 {
		t.Errorf("docs/tour.md shows too little: %v", kinds)
	}
}

// serveInBackground runs weir serve --config FILE --http ADDRESS & with a store and a port of the test.
func serveInBackground(t *testing.T, redis *redisServer, args []string) *server {
	t.Helper()
	if len(args) != 7 || args[2] != "--config" || args[4] != "--http" {
		t.Fatalf("the test does not know how to run %q", args)
	}
	text, err := os.ReadFile(filepath.Join("..", "..", args[3]))
	if err != nil {
		t.Fatal(err)
	}
	const store = "store: redis://127.0.0.1:6379\n"
	if !strings.Contains(string(text), "\n"+store) {
		t.Fatalf("%s has not the line %s", args[3], store)
	}
	path := filepath.Join(t.TempDir(), "weir.yaml")
	writeConfig(t, path, strings.Replace(string(text), store, "store: {url: "+redis.url()+", timeout: 1m}\n", 1))
	s := startServer(t, "--config", path)
	s.logged("msg=serving")
	return s
}

// redisCLI asks the server of the test in place of that on the port of the page, and returns what a terminal shows.
func redisCLI(t *testing.T, s *allFronts, args []string) string {
	t.Helper()
	if s == nil || len(args) < 4 || args[1] != "-p" {
		t.Fatalf("the test does not know how to run %q", args)
	}
	_, port, err := net.SplitHostPort(s.resp)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "redis-cli", append([]string{"--no-raw", "-p", port}, args[3:]...)...).Output()
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return string(out)
}

var curlLoops = regexp.MustCompile(`^for i in ([0-9 ]+); do curl -s -o /dev/null -w '%\{http_code\} ' -d '([^']*)' ` +
	`http://(127\.0\.0\.1:707)\$i/v1/check; done$`)

// curlLoop asks servers in turn, and returns what the loop of docs/tour.md prints.
func curlLoop(t *testing.T, servers map[string]*server, command string) string {
	t.Helper()
	parts := curlLoops.FindStringSubmatch(command)
	if parts == nil {
		t.Fatalf("the test does not know how to run %q", command)
	}
	var printed strings.Builder
	for i := range strings.FieldsSeq(parts[1]) {
		s := servers[parts[3]+i]
		if s == nil {
			t.Fatalf("no server runs at %s%s", parts[3], i)
		}
		a, _ := s.check(parts[2])
		fmt.Fprintf(&printed, "%d ", a.status)
	}
	return printed.String()
}

// TestShownConfigurations reads the configurations that docs/tour.md and docs/recipes.md show.
func TestShownConfigurations(t *testing.T) {
	for _, page := range []string{tourPage, "../../docs/recipes.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := strings.Split(string(text), "```yaml\n")[1:]
		for _, block := range blocks {
			block, _, _ = strings.Cut(block, "```")
			file, err := config.Parse(page, []byte(block), config.Options{})
			if err != nil {
				t.Errorf("%s\n%v", block, err)
			} else if len(file.Warnings) > 0 {
				t.Errorf("%s\n%v", block, file.Warnings)
			}
		}
		if len(blocks) == 0 {
			t.Errorf("%s shows none", page)
		}
	}
}

// What differs from run to run: the date, and how much time has passed between two commands.
var (
	dateLine = regexp.MustCompile(`Date: [^\r\n]+`)
	lengths  = regexp.MustCompile(`Content-Length: \d+`)
	waiting  = regexp.MustCompile(`("(?:retry|reset)_after":)(?:1\.\d+|2)\b`)
	seconds  = regexp.MustCompile(`((?:Retry-After: |;t=))[12]`)

	refusalLine = regexp.MustCompile(`Weir-Refusal: ([0-9a-f]+)`)
	whyChanges  = []*regexp.Regexp{
		regexp.MustCompile(`(refused )[-0-9]+ [:0-9]+ UTC \([^)]+ ago\)`), regexp.MustCompile(`(refusal )[0-9a-f]+`),
		regexp.MustCompile(`((?:retry after|are back in) )[.0-9]+m?s`),
	}
)

// why is what weir why says first of a refusal.
func why(t *testing.T, s *server, refusal string) string {
	t.Helper()
	out, err := command(t, "why", refusal, "--server", "http://"+s.address).Output()
	if err != nil {
		t.Fatalf("weir why %s: %v", refusal, err)
	}
	lines := strings.SplitAfterN(string(out), "\n", 6)
	return strings.Join(lines[:min(len(lines), 5)], "")
}

func still(text string) string {
	text = strings.ReplaceAll(text, "\r", "")
	text = dateLine.ReplaceAllString(text, "Date: D")
	text = lengths.ReplaceAllString(text, "Content-Length: N")
	text = waiting.ReplaceAllString(text, "${1}N")
	text = seconds.ReplaceAllString(text, "${1}N")
	text = refusalLine.ReplaceAllString(text, "Weir-Refusal: ID")
	for _, changing := range whyChanges {
		text = changing.ReplaceAllString(text, "${1}N")
	}
	return strings.TrimSpace(text)
}

// shellWords splits a command at blanks outside single quotes.
func shellWords(command string) []string {
	var words []string
	for i, part := range strings.Split(command, "'") {
		if i%2 == 1 {
			words = append(words, part)
		} else {
			words = append(words, strings.Fields(part)...)
		}
	}
	return words
}

// curl sends what curl -d sends, and returns what curl prints. The address stands for that of the server.
func curl(t *testing.T, server, address string, args []string) string {
	t.Helper()
	var body, path string
	include := false
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == "-i":
			include = true
		case args[i] == "-d":
			i++
			body = args[i]
		case strings.HasPrefix(args[i], "http://"+address):
			path = strings.TrimPrefix(args[i], "http://"+address)
		default:
			t.Fatalf("curl %s: what does %s mean?", args, args[i])
		}
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: curl/8.14.1\r\nAccept: */*\r\n"+
		"Content-Length: %d\r\nContent-Type: application/x-www-form-urlencoded\r\nConnection: close\r\n\r\n%s",
		path, address, len(body), body)
	raw, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(strings.NewReader(string(raw))), nil)
	if err != nil {
		t.Fatalf("%v in %q", err, raw)
	}
	defer response.Body.Close()
	text := strings.ReplaceAll(string(raw), "Connection: close\r\n", "")
	if !include {
		_, text, _ = strings.Cut(text, "\r\n\r\n")
	}
	return text
}
