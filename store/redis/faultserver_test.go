package redis

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/algo"
	"github.com/weirhq/weir/store"
)

// startFake starts a server that greets as Redis does, and then answers every command by what reply says.
func startFake(tb testing.TB, reply func(command []string) string) (address string) {
	tb.Helper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	var wait sync.WaitGroup
	var lock sync.Mutex
	var conns []net.Conn
	wait.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			lock.Lock()
			conns = append(conns, conn)
			lock.Unlock()
			wait.Go(func() { serveFake(conn, reply) })
		}
	})
	tb.Cleanup(func() {
		_ = listener.Close()
		lock.Lock()
		for _, conn := range conns {
			_ = conn.Close()
		}
		lock.Unlock()
		wait.Wait()
	})
	return listener.Addr().String()
}

func serveFake(conn net.Conn, reply func(command []string) string) {
	defer conn.Close()
	r := bufio.NewReader(conn)
	for {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		text := reply(command)
		switch {
		case text != "" && command[0] != "HELLO" && command[0] != "CLIENT":
		case command[0] == "HELLO":
			text = "%3\r\n+server\r\n+redis\r\n+version\r\n+7.0.0\r\n+proto\r\n:3\r\n"
		case command[0] == "CLIENT":
			text = "+OK\r\n"
		case command[0] == "PING":
			text = "+PONG\r\n"
		}
		if _, err := io.WriteString(conn, text); err != nil {
			return
		}
	}
}

func readCommand(r *bufio.Reader) ([]string, error) {
	number := func() (int, error) {
		line, err := r.ReadString('\n')
		if err != nil || len(line) < 3 {
			return 0, errors.Join(err, io.ErrUnexpectedEOF)
		}
		return strconv.Atoi(line[1 : len(line)-2])
	}
	n, err := number()
	if err != nil || n < 1 {
		return nil, errors.Join(err, io.ErrUnexpectedEOF)
	}
	command := make([]string, n)
	for i := range command {
		size, err := number()
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		command[i] = string(text[:size])
	}
	return command, nil
}

// TestServerAnswersNonsense has a server answer what a server cannot mean: calls fail, by their timeout if by nothing else, and the process goes on.
func TestServerAnswersNonsense(t *testing.T) {
	t.Parallel()
	const timeout = 100 * time.Millisecond
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	odd := func(values ...float64) string {
		text := []byte{0}
		for _, v := range values {
			text = binary.LittleEndian.AppendUint64(text, math.Float64bits(v))
			text = append(text, 1)
		}
		return bulk(string(text))
	}
	answers := []string{
		"+OK\r\n", ":1\r\n", "_\r\n", "$-1\r\n", "*0\r\n", "*2\r\n:1\r\n:2\r\n", "%1\r\n+a\r\n+b\r\n", "#t\r\n", ",1.5\r\n",
		"-ERR unknown command\r\n", "-\r\n", "-MOVED 1 127.0.0.1:1\r\n", "-ASK 1 127.0.0.1:1\r\n", "-TRYAGAIN\r\n", "-NOSCRIPT no\r\n",
		"-LOADING soon\r\n", "-BUSY\r\n", "-CLUSTERDOWN\r\n",
		bulk(""), bulk("\x00"), bulk("\x01"), bulk("\x02"), bulk("\x02\x07"), bulk("\x09"), bulk("hello"), bulk(strings.Repeat("\x00", 17)),
		bulk(strings.Repeat("\x01", 1000)), bulk(strings.Repeat("\x02", 1000)),
		odd(math.NaN(), math.Inf(1)), odd(math.Inf(-1)), odd(1e300, 1e300),
		"HTTP/1.1 400 Bad Request\r\n\r\n", "$5\r\nab", "$99999999999\r\n", "*999999999\r\n", "$-7\r\n", "\r\n", "\x00\x01\x02",
		">2\r\n+message\r\n+x\r\n", "+OK\r\n+OK\r\n", "+OK\r\n+OK\r\n+OK\r\n:1\r\n", bulk("\x00") + bulk("\x00"),
		"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n", strings.Repeat("*1\r\n", 1000),
	}
	var wait sync.WaitGroup
	slots := make(chan struct{}, 8)
	for _, answer := range answers {
		address := startFake(t, func([]string) string { return answer })
		wait.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			s, err := Open(Options{Addresses: []string{address}, Timeout: timeout})
			if err != nil {
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("%.30q: %v", answer, err)
				}
				return
			}
			defer s.Close()
			c := []store.Charge{
				{Policy: "p", Key: "k", Limit: yearly(10), N: 1},
				{Policy: "c", Key: "k", N: 1, Limit: weir.CalendarWindow(10, algo.Calendar{Unit: algo.CalendarDay})},
				{Policy: "s", Key: "k", N: 1, Limit: weir.SlidingWindow(weir.PerSecond(10), 0)},
			}
			ctx := context.Background()
			d := make([]weir.Decision, len(c))
			for range 3 {
				for what, call := range map[string]func() error{
					"take":    func() error { return store.Take(ctx, s, c, d) },
					"one":     func() error { return store.Take(ctx, s, c[2:], d[2:]) },
					"peek":    func() error { return store.Peek(ctx, s, c, d) },
					"refund":  func() error { return store.Refund(ctx, s, c) },
					"debit":   func() error { return store.Debit(ctx, s, c, d) },
					"reserve": func() error { _, err := store.Reserve(ctx, s, c, d, time.Second); return err },
					"lend":    func() error { _, _, err := store.Lend(ctx, s, c[0], 1); return err },
					"inspect": func() error { _, err := store.Inspect(ctx, s, c[0]); return err },
					"reset":   func() error { return store.Reset(ctx, s, "p", "k") },
				} {
					if err := call(); err == nil { // in the end, as nothing else ends it
						for i := range d {
							if d[i].Allowed && (d[i].Remaining < 0 || d[i].Remaining > d[i].Limit) {
								t.Errorf("%.30q: %s: %+v", answer, what, d[i])
							}
						}
					} else if !errors.Is(err, store.ErrUnavailable) {
						t.Errorf("%.30q: %s: %v", answer, what, err)
					}
				}
			}
		})
	}
	wait.Wait()
	t.Logf("%d answers that no script gives: calls failed with ErrUnavailable", len(answers))
}

// TestServerGreetsWrongly has a server that is none of Redis, and never ends a connection: Open fails all the same.
func TestServerGreetsWrongly(t *testing.T) {
	t.Parallel()
	for _, banner := range []string{
		"HTTP/1.1 400 Bad Request\r\n\r\n", "SSH-2.0-OpenSSH_9\r\n", "J\x00\x00\x00\x0a8.0.36\x00", "220 mail ESMTP\r\n", "-ERR max number of clients reached\r\n",
		"-LOADING Redis is loading the dataset in memory\r\n", "-DENIED Redis is running in protected mode\r\n", "+OK\r\n+OK\r\n+OK\r\n+OK\r\n", "", "*-5\r\n",
	} {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		var wait sync.WaitGroup
		wait.Go(func() {
			for {
				conn, failed := listener.Accept()
				if failed != nil {
					return
				}
				wait.Go(func() {
					_, _ = io.WriteString(conn, banner)
					_, _ = io.Copy(io.Discard, conn)
					_ = conn.Close()
				})
			}
		})
		s, err := Open(Options{Addresses: []string{listener.Addr().String()}, Timeout: 100 * time.Millisecond})
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%q: %v", banner, err)
		}
		if s != nil {
			_ = s.Close()
		}
		_ = listener.Close()
		wait.Wait()
	}
}

// TestServerReadOnly uses a replica: what writes fails, and nothing is taken; when it is made a master, calls are answered.
func TestServerReadOnly(t *testing.T) {
	t.Parallel()
	master := startServer(t, "--repl-diskless-sync-delay", "0")
	replica := startServer(t, "--replicaof", "127.0.0.1 "+strconv.Itoa(master.port))
	until(t, "the replica follows", func() bool { return replica.info("replication", "master_link_status") == "up" })
	s := replica.open(Options{})
	c := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(10), N: 1}}
	d := make([]weir.Decision, 1)
	for range 20 {
		if err := store.Take(context.Background(), s, c, d); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "READONLY") {
			t.Fatal(err)
		}
	}
	if err := store.Peek(context.Background(), s, c, d); err != nil || d[0].Remaining != 10 {
		t.Errorf("%+v, %v", d, err)
	}
	replica.ask("REPLICAOF", "NO", "ONE")
	admitted := 0
	for range 20 {
		if err := store.Take(context.Background(), s, c, d); err != nil {
			t.Fatal(err)
		}
		if d[0].Allowed {
			admitted++
		}
	}
	t.Logf("read-only: 20 calls failed; afterwards admitted %d, allowed 10", admitted)
	if admitted != 10 {
		t.Errorf("admitted %d, want 10", admitted)
	}
}

// TestNameLeadsToAnotherMaster swaps the roles of a master and its replica behind one address, as a name or a virtual address does
// whose old connections stay: calls go to the new master, and connections to a replica are made anew once a second only.
func TestNameLeadsToAnotherMaster(t *testing.T) {
	t.Parallel()
	old := startServer(t, "--repl-diskless-sync-delay", "0")
	other := startServer(t, "--repl-diskless-sync-delay", "0", "--replicaof", "127.0.0.1 "+strconv.Itoa(old.port))
	until(t, "the replica follows", func() bool { return other.info("replication", "master_link_status") == "up" })
	name := startLink(t, old.address())
	s := open(t, Options{Addresses: []string{name.address()}, Connections: 1})
	c, d := []store.Charge{{Policy: "p", Key: "k", Limit: yearly(1_000_000), N: 1}}, make([]weir.Decision, 1)
	take := func() error { return store.Take(t.Context(), s, c, d) }
	if err := take(); err != nil {
		t.Fatal(err)
	}
	other.ask("REPLICAOF", "NO", "ONE")
	old.ask("REPLICAOF", "127.0.0.1", strconv.Itoa(other.port))
	until(t, "a connection is made anew", func() bool {
		if err := take(); err == nil || !strings.Contains(err.Error(), "READONLY") {
			t.Fatal("asked of a replica: ", err)
		}
		return name.attempts() >= 2
	})
	begin, made := time.Now(), name.attempts()
	for range 100 {
		_ = take()
	}
	if n, took := name.attempts()-made, time.Since(begin); n > 1+int(took/time.Second) {
		t.Errorf("%d connections in %v", n, took)
	}
	name.move(other.address())
	until(t, "calls go to the new master", func() bool { return take() == nil })
}

// TestServerFull has the memory of a server that evicts nothing become full under load: calls fail until there is room, and
// nothing is forgotten.
func TestServerFull(t *testing.T) {
	t.Parallel()
	server := startServer(t, "--maxmemory", "100mb", "--maxmemory-policy", "noeviction")
	s := server.open(Options{}) // no call ends without an answer
	l := newLoad(t, faultCharges(50, 20_000), s).start(8)
	l.more(1000)
	server.ask("CONFIG", "SET", "maxmemory", "100kb") // less than is used
	failed := l.failed.Load()
	until(t, "calls fail", func() bool { return l.failed.Load() > failed+50 })
	c := []store.Charge{{Policy: "new", Key: "k", Limit: yearly(10), N: 1}}
	if err := store.Take(context.Background(), s, c, make([]weir.Decision, 1)); !errors.Is(err, store.ErrUnavailable) || !strings.Contains(err.Error(), "OOM") {
		t.Error(err)
	}
	server.ask("CONFIG", "SET", "maxmemory", "100mb")
	l.recovery(0)
	l.more(1000)
	l.stop()
	sum := l.drain(s)
	l.report("memory full", sum)
	if sum.above > 0 || sum.admitted < sum.allowed {
		t.Errorf("admitted %d of %d", sum.admitted, sum.allowed)
	}
}

// TestServerLoads kills a server under load that takes its time to load its data: until then calls fail.
func TestServerLoads(t *testing.T) {
	t.Parallel()
	const timeout = 250 * time.Millisecond
	server := startServer(t, "--appendonly", "yes", "--appendfsync", "always", "--loading-process-events-interval-bytes", "1024")
	s, patient := server.open(Options{Timeout: timeout}), server.open(Options{})
	for i := range 1000 {
		server.ask("SET", fmt.Sprint("other", i), strings.Repeat("x", 100))
	}
	server.ask("BGREWRITEAOF")
	until(t, "the file is rewritten", func() bool { return server.info("persistence", "aof_rewrite_in_progress") == "0" })
	l := newLoad(t, faultCharges(50, 20_000), s).start(8)
	l.more(1000)
	server.kill()
	server.args = append(server.args, "--key-load-delay", "30000") // microseconds: it takes half a minute, unless it is told to hurry
	server.launch()
	c := []store.Charge{{Policy: "new", Key: "k", Limit: yearly(10), N: 1}}
	loading := 0
	until(t, "the server has loaded its data", func() bool { // calls are answered
		err := store.Take(context.Background(), patient, c, make([]weir.Decision, 1))
		if err != nil && strings.Contains(err.Error(), "LOADING") {
			loading++
			_, _ = server.try("CONFIG", "SET", "key-load-delay", "0") // or once more
		}
		return err == nil
	})
	l.more(1000)
	l.stop()
	sum := l.drain(patient)
	l.report("loading", sum)
	t.Logf("%d calls were told that it loads", loading)
	if loading == 0 {
		t.Error("no call was told that it loads")
	}
	if sum.above > 0 {
		t.Errorf("%d above the limit", sum.above)
	}
}
