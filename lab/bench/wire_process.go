package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
)

// wireProcess is a server that this process has started, and that does not outlive it.
type wireProcess struct {
	cmd   *exec.Cmd
	guard *exec.Cmd // kills the server if this process ends without doing so
	leash io.WriteCloser
	lines chan string // its output, as long as there is a reader
	tail  lastLines
	read  sync.WaitGroup
}

// wireLines is how many lines are kept until they are read: more than a server prints before it is ready.
const wireLines = 64

// lastLines are the last ones that a process has said, for errors.
type lastLines struct {
	mu  sync.Mutex
	all []string
}

func (l *lastLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 20
	if l.all = append(l.all, line); len(l.all) > most {
		l.all = l.all[1:]
	}
}

// String is all of them.
func (l *lastLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.all, "\n")
}

// startWire starts a program where servers run. stop must be called.
func startWire(cmd *exec.Cmd, start func(*exec.Cmd) error) (p *wireProcess, err error) {
	p = &wireProcess{cmd: cmd, lines: make(chan string, wireLines)}
	ownGroup(cmd) // interrupts of the terminal do not reach it: stop ends it
	out, in, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("bench: a pipe for %s: %w", cmd.Path, err)
	}
	cmd.Stdout, cmd.Stderr = in, in
	err = start(cmd)
	_ = in.Close()
	if err != nil {
		_ = out.Close()
		return nil, err
	}
	p.read.Go(func() { p.listen(out) })
	//nolint:gosec // the argument is the number of a process; it outlives every context, as stop ends it
	p.guard = exec.CommandContext(context.Background(), "sh", "-c", `read -r _ || kill -9 "$0"`, strconv.Itoa(cmd.Process.Pid))
	ownGroup(p.guard)
	if p.leash, err = p.guard.StdinPipe(); err == nil {
		err = p.guard.Start()
	}
	if err != nil {
		p.guard = nil
		p.stop()
		return nil, fmt.Errorf("bench: start what guards %s: %w", cmd.Path, err)
	}
	return p, nil
}

// listen reads what the process says until it ends.
func (p *wireProcess) listen(out *os.File) {
	defer close(p.lines)
	defer out.Close() //nolint:errcheck // it was read
	s := bufio.NewScanner(out)
	for s.Scan() {
		p.tail.add(s.Text())
		select {
		case p.lines <- s.Text():
		default: // there is no reader any more
		}
	}
	_, _ = io.Copy(io.Discard, out) // after a line that is too long
}

// says waits for a line that contains a mark.
func (p *wireProcess) says(ctx context.Context, mark string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return "", fmt.Errorf("bench: %s has ended without saying %q:\n%s", p.cmd.Path, mark, &p.tail)
			}
			if strings.Contains(line, mark) {
				return line, nil
			}
		case <-ctx.Done():
			return "", fmt.Errorf("bench: %s does not say %q: %w:\n%s", p.cmd.Path, mark, ctx.Err(), &p.tail)
		}
	}
}

// stop ends the process.
func (p *wireProcess) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
	p.read.Wait()
	if p.guard != nil {
		_, _ = p.leash.Write([]byte("\n"))
		_ = p.guard.Wait()
	}
}

// wireVariable makes a process that calls ServeMember a server that weir's are compared with.
const wireVariable = "WEIR_BENCH_WIRE"

// wireListens begins what such a server says when it is one, before its address.
const wireListens = "listens on "

// wireMember says which server a process is to be.
type wireMember struct {
	Kind string `json:"kind"`
	// Reply is what it answers, Header the fields of that if it speaks HTTP.
	Reply  []byte              `json:"reply"`
	Header map[string][]string `json:"header,omitempty"`
	// Redis is where the server counts that asks one.
	Redis string `json:"redis,omitempty"`
}

// serveWire makes this process a server if it was started as one, and reports whether it was.
func serveWire() bool {
	text := os.Getenv(wireVariable)
	if text == "" {
		return false
	}
	var m wireMember
	err := json.Unmarshal([]byte(text), &m)
	if err == nil {
		err = m.serve(context.Background(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "weir: bench: a server: %v\n", err)
	}
	return true
}

var errWireMember = errors.New("a program that measures servers must call ServeMember first")

// startMember starts this program as a server.
func (m wireMember) start(ctx context.Context, p wirePlace) (s *wireServer, err error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("bench: find this program: %w", err)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("bench: what a server is to be: %w", err)
	}
	//nolint:gosec,contextcheck // it is this program; it outlives the context, as stop ends it
	cmd := exec.CommandContext(context.Background(), program)
	cmd.Env = append(wireEnvironment(), wireVariable+"="+string(text))
	s = &wireServer{}
	if s.process, err = startWire(cmd, p.onServer); err != nil { //nolint:contextcheck // it outlives the context
		return nil, err
	}
	line, err := s.process.says(ctx, wireListens)
	if err != nil {
		s.stop()
		return nil, errors.Join(err, errWireMember)
	}
	s.address = strings.TrimPrefix(line, wireListens)
	return s, nil
}

// wireEnvironment is the one of this process, without what would make a server of Go another than it is by itself.
func wireEnvironment() (all []string) {
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		switch name {
		case "GOMAXPROCS", "GOGC", "GOMEMLIMIT", "GODEBUG", wireVariable, memberVariable:
		default:
			all = append(all, v)
		}
	}
	return all
}
