package browser_test

import (
	"bytes"
	"context"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/programtest"
)

// weirProgram is a program that is there already.
var weirProgram = flag.String("weir", "", "the program to test, instead of one that is built")

// screenshots is where TestScreenshots writes pictures of all views.
var screenshots = flag.String("screenshots", "", "a directory for pictures of all views: make screenshots")

func TestMain(m *testing.M) {
	flag.DurationVar(&patience, "patience", patience, "how long a page may take for what a test waits for")
	code := programtest.Main(m)
	closeBrowser()
	os.Exit(code)
}

var builtProgram = programtest.Program{Name: "weir", Dir: "../../../cmd/weir"}

// server is weir serve.
type server struct {
	t       *testing.T
	address string
	file    string // its configuration
	flags   []string
	at      *programtest.Process
}

// serve starts weir serve with a configuration, until the end of the test.
func serve(t *testing.T, config string, flags ...string) *server {
	t.Helper()
	s := &server{t: t, address: programtest.FreeAddress(t), file: filepath.Join(t.TempDir(), "weir.yaml"), flags: flags}
	s.configure(config)
	s.start()
	return s
}

// configure writes the configuration.
func (s *server) configure(config string) {
	s.t.Helper()
	programtest.Write(s.t, filepath.Dir(s.file), filepath.Base(s.file), config)
}

// start starts the server, and waits until it answers.
func (s *server) start() {
	s.t.Helper()
	path := *weirProgram
	if path == "" {
		path = builtProgram.Path(s.t)
	}
	s.at = programtest.Command{
		Path: path, Dir: filepath.Dir(s.file), // so that places in it have a short name
		Args: append([]string{"serve", "--http", s.address, "--config", filepath.Base(s.file)}, s.flags...),
	}.Start(s.t)
	s.at.Listens(s.address)
}

// post sends JSON, and returns the status, the field Weir-Refusal and the body.
func (s *server) post(path, body string) (status int, refusal, answer string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.address+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	return s.do(r)
}

func (s *server) do(r *http.Request) (status int, refusal, answer string) {
	s.t.Helper()
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Error(err)
		return 0, "", ""
	}
	defer response.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(response.Body); err != nil {
		s.t.Error(err)
	}
	return response.StatusCode, response.Header.Get("Weir-Refusal"), b.String()
}

// within polls a condition until it holds.
func within(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// tokenFile is a file with tokens.
func tokenFile(t *testing.T, text string) string {
	t.Helper()
	return programtest.Write(t, t.TempDir(), "tokens", text)
}
