package respapi

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// serverCommands are about the server.
type serverCommands struct{}

func (serverCommands) commands() []command {
	return append(append(grouped("cluster", nil, spec{
		"cluster", -2, 0, 0, "subcommand", "Answers that there is no cluster", answers(func(w *resp.Writer) {
			w.Error("ERR This instance has cluster support disabled")
		}),
	}), grouped(serverGroup, nil,
		spec{"info", -1, readonly, 0, "[section ...]", "Tells of the server", info},
		spec{
			"time", 1, fast, 0, "", "Answers the time of the server: seconds and microseconds", answers(func(w *resp.Writer) {
				now := time.Now()
				w.Any([]any{strconv.FormatInt(now.Unix(), 10), strconv.Itoa(now.Nanosecond() / 1000)})
			}),
		},
	)...), container("command", "Tells of commands", 0, commandSubcommands()...).orElse(commandAll),
		container("config", "Tells a few settings that tools ask for", admin,
			spec{"get", -3, 0, 0, "parameter [parameter ...]", "Answers the settings whose names match", configGet}))
}

// orElse makes a command with subcommands one that can stand alone.
func (c command) orElse(alone func(c *conn, w *resp.Writer)) command {
	with := c.run
	c.arity = -1
	c.run = func(s *conn, w *resp.Writer, args [][]byte) {
		if len(args) == 1 {
			alone(s, w)
			return
		}
		with(s, w, args)
	}
	return c
}

// configGet returns what tools look at before they measure or watch a server.
func configGet(c *conn, w *resp.Writer, args [][]byte) {
	var found resp.Pairs
	for _, setting := range [][2]string{
		{"appendonly", "no"},
		{"databases", strconv.Itoa(databases)},
		{"maxclients", strconv.Itoa(c.s.o.MaxConnections)},
		{"maxmemory", "0"},
		{"save", ""},
		{"timeout", strconv.FormatInt(int64(math.Ceil(c.s.o.IdleTimeout.Seconds())), 10)},
	} {
		if slices.ContainsFunc(args[2:], func(p []byte) bool { return matches(strings.ToLower(string(p)), setting[0]) }) {
			found = append(found, setting[0], setting[1])
		}
	}
	w.Any(found)
}

// section is a part of INFO.
type section struct {
	name  string
	lines func(s *Server) []string
}

var sections = []section{
	{"Server", func(s *Server) []string {
		state := "serving"
		if s.draining.Load() {
			state = "draining"
		}
		up := time.Since(s.started)
		return []string{
			"redis_version:" + compatible, "redis_mode:standalone", "weir_version:" + weirVersion, "weir_state:" + state,
			"os:" + runtime.GOOS + " " + runtime.GOARCH, "arch_bits:" + strconv.Itoa(strconv.IntSize),
			"go_version:" + runtime.Version(),
			fmt.Sprintf("process_id:%d", os.Getpid()), fmt.Sprintf("uptime_in_seconds:%d", int64(up.Seconds())),
			fmt.Sprintf("uptime_in_days:%d", int64(up.Hours()/24)),
		}
	}},
	{"Clients", func(s *Server) []string {
		return []string{
			fmt.Sprintf("connected_clients:%v", s.Status()["connections"]), fmt.Sprintf("maxclients:%d", s.o.MaxConnections),
			"blocked_clients:0",
		}
	}},
	{"Memory", func(*Server) []string {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return []string{
			fmt.Sprintf("used_memory:%d", m.HeapAlloc), fmt.Sprintf("used_memory_human:%.2fM", float64(m.HeapAlloc)/(1<<20)),
			fmt.Sprintf("used_memory_rss:%d", m.Sys-m.HeapReleased), "maxmemory:0",
		}
	}},
	{"Stats", func(s *Server) []string {
		return []string{
			fmt.Sprintf("total_connections_received:%d", s.lastID.Load()),
			fmt.Sprintf("total_commands_processed:%d", s.answered.Load()),
			fmt.Sprintf("rejected_connections:%d", s.rejected.Load()),
			fmt.Sprintf("protocol_errors:%d", s.protocolErrors.Load()),
			fmt.Sprintf("timed_out_connections:%d", s.timedOut.Load()),
		}
	}},
	{"Replication", func(*Server) []string { return []string{"role:master", "connected_slaves:0"} }},
	{"Cluster", func(*Server) []string { return []string{"cluster_enabled:0"} }},
	{"Keyspace", func(*Server) []string { return nil }},
}

func info(c *conn, w *resp.Writer, args [][]byte) {
	var b strings.Builder
	for _, s := range sections {
		if !wants(args[1:], strings.ToLower(s.name)) {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + s.name + "\r\n")
		for _, line := range s.lines(c.s) {
			b.WriteString(line + "\r\n")
		}
	}
	w.Text(b.String())
}

// wants reports whether a section is asked for. Without arguments all are.
func wants(args [][]byte, name string) bool {
	return len(args) == 0 || slices.ContainsFunc(args, func(a []byte) bool {
		return equalFold(a, name) || equalFold(a, "all") || equalFold(a, "default") || equalFold(a, "everything")
	})
}
