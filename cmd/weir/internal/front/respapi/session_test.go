package respapi_test

import (
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
)

func TestSession(t *testing.T) {
	s := start(t, nil)
	c := s.dial()
	for _, step := range []struct {
		want string
		args []string
	}{
		{"+PONG", []string{"PING"}},
		{"$hi", []string{"piNg", "hi"}},
		{"-ERR wrong number of arguments for 'ping' command", []string{"PING", "a", "b"}},
		{"$a\r\nb", []string{"ECHO", "a\r\nb"}},
		{"-ERR wrong number of arguments for 'echo' command", []string{"echo"}},
		{"-ERR unknown command 'GET', with args beginning with: 'a  b' 'c' ", []string{"GET", "a\r\nb", "c"}},
		{"-ERR unknown command '" + strings.Repeat("x", 128) + "', with args beginning with: ", []string{strings.Repeat("x", 500), "y"}},
		{"-ERR unknown command '', with args beginning with: ", []string{""}},
		{"+OK", []string{"SELECT", "0"}},
		{"+OK", []string{"SELECT", "15"}},
		{"-ERR DB index is out of range", []string{"SELECT", "16"}},
		{"-ERR value is not an integer or out of range", []string{"SELECT", "x"}},
		{"-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?", []string{"AUTH", "x"}},
		{"+OK", []string{"AUTH", "default", "x"}},
		{"-WRONGPASS invalid username-password pair or user is disabled.", []string{"AUTH", "root", "x"}},
		{"-ERR syntax error", []string{"AUTH", "a", "b", "c"}},

		{":1", []string{"CLIENT", "ID"}},
		{"_", []string{"CLIENT", "GETNAME"}},
		{"+OK", []string{"client", "setname", "me"}},
		{"$me", []string{"CLIENT", "GETNAME"}},
		{"-ERR Client names cannot contain spaces, newlines or special characters, or be longer than 256.", []string{"CLIENT", "SETNAME", "a b"}},
		{"-ERR Client names cannot contain spaces, newlines or special characters, or be longer than 256.", []string{"CLIENT", "SETNAME", strings.Repeat("x", 257)}},
		{"+OK", []string{"CLIENT", "SETINFO", "LIB-NAME", "lib"}},
		{"+OK", []string{"CLIENT", "SETINFO", "lib-ver", "1.2"}},
		{"-ERR lib-ver cannot contain spaces, newlines or special characters, or be longer than 256.", []string{"CLIENT", "SETINFO", "LIB-VER", "1 2"}},
		{"-ERR Unrecognized option 'x'", []string{"CLIENT", "SETINFO", "x", "1"}},
		{"+OK", []string{"CLIENT", "NO-EVICT", "ON"}},
		{"-ERR syntax error", []string{"CLIENT", "NO-TOUCH", "maybe"}},
		{"+OK", []string{"CLIENT", "CAPA", "redirect"}},
		{"+OK", []string{"CLIENT", "TRACKING", "ON", "OPTIN"}},
		{"+OK", []string{"CLIENT", "TRACKING", "OFF"}},
		{"-ERR CLIENT TRACKING is not supported but with OPTIN: no reply of weir may be kept. Turn client-side caching off", []string{"CLIENT", "TRACKING", "ON"}},
		{"-ERR CLIENT CACHING is not supported: no reply of weir may be kept. Turn client-side caching off", []string{"CLIENT", "CACHING", "YES"}},
		{":-1", []string{"CLIENT", "GETREDIR"}},
		{"-ERR unknown subcommand 'KILL'. Try CLIENT HELP.", []string{"CLIENT", "KILL", "ID", "1"}},
		{"-ERR wrong number of arguments for 'client|setname' command", []string{"CLIENT", "SETNAME"}},
		{"-ERR wrong number of arguments for 'client' command", []string{"CLIENT"}},
		{"-ERR Invalid client ID", []string{"CLIENT", "LIST", "ID", "x"}},
		{"-ERR syntax error", []string{"CLIENT", "LIST", "ID"}},
		{"-ERR syntax error", []string{"CLIENT", "LIST", "SKIPME", "no"}},
		{"$", []string{"CLIENT", "LIST", "type", "PUBSUB"}},
		{"-ERR Unknown client type 'x'", []string{"CLIENT", "LIST", "TYPE", "x"}},
		{"$", []string{"CLIENT", "LIST", "ID", "99"}},

		{"*[$save $]", []string{"CONFIG", "GET", "save"}},
		{"*[$appendonly $no]", []string{"CONFIG", "GET", "appendonly"}},
		{"*[$databases $16 $maxclients $10000 $save $]", []string{"CONFIG", "GET", "s*e", "databases", "MAXCLIENTS"}},
		{"*[]", []string{"CONFIG", "GET", "[", "x"}},
		{"-ERR unknown subcommand 'SET'. Try CONFIG HELP.", []string{"CONFIG", "SET", "save", ""}},
		{"-ERR This instance has cluster support disabled", []string{"CLUSTER", "SLOTS"}},
		{"*[$echo $ping]", []string{"COMMAND", "LIST", "FILTERBY", "PATTERN", "[pe][ic][nh][go]"}},
		{"*[*[$ping :-1 *[+fast] :0 :0 :0 *[+@fast +@connection] *[] *[] *[]] _]", []string{"COMMAND", "INFO", "PING", "nothing"}},
		{"*[$a]", []string{"COMMAND", "GETKEYS", "CL.THROTTLE", "a", "1", "1", "1"}},
		{"-ERR The command has no key arguments", []string{"COMMAND", "GETKEYS", "PING"}},
		{"-ERR Invalid command specified", []string{"COMMAND", "GETKEYS", "GET"}},
		{"-ERR Invalid number of arguments specified for command", []string{"COMMAND", "GETKEYS", "ECHO"}},
		{"*[$select *[$summary $Is accepted for clients that choose a database: all are the same one $since $1.0.0 $group $connection $arguments *[*[$name $index $type $string]]]]", []string{"COMMAND", "DOCS", "select", "nothing"}},

		{"-NOPROTO unsupported protocol version", []string{"HELLO", "4"}},
		{"-ERR Protocol version is not an integer or out of range", []string{"HELLO", "x"}},
		{"-ERR Syntax error in HELLO option 'AUTH'", []string{"HELLO", "3", "AUTH", "x"}},
		{"*[$server $weir $version $7.2.0 $weir_version $(devel) $proto :2 $id :1 $mode $standalone $role $master $modules *[]]", []string{"HELLO"}},
		{"%[$server $weir $version $7.2.0 $weir_version $(devel) $proto :3 $id :1 $mode $standalone $role $master $modules *[]]", []string{"HELLO", "3", "AUTH", "default", "any", "SETNAME", "you"}},
		{"$you", []string{"CLIENT", "GETNAME"}},
		{"%[$save $]", []string{"CONFIG", "GET", "save"}},
		{"+RESET", []string{"RESET"}},
		{"_", []string{"CLIENT", "GETNAME"}},
		{"*[$save $]", []string{"CONFIG", "GET", "save"}},
		{"+OK", []string{"QUIT"}},
	} {
		c.expect(step.want, step.args...)
	}
	c.expectEnd()
	got := s.Status()
	if commands, ok := got["commands"].(int64); !ok || commands < 50 || got["connections_total"] != int64(1) {
		t.Error(got)
	}
}

// TestClientListOfType: all clients are normal ones.
func TestClientListOfType(t *testing.T) {
	s := start(t, nil)
	c := s.dial()
	c.expect("+OK", "CLIENT", "SETNAME", "me")
	for _, args := range [][]string{{"CLIENT", "LIST"}, {"CLIENT", "LIST", "TYPE", "normal"}} {
		if got := c.ask(args...); !strings.Contains(got, " name=me ") {
			t.Errorf("%q: %s", args, got)
		}
	}
}

// TestCommandsDescribeThemselves: what is described in two ways is described alike, and everything that describes itself can be read.
func TestCommandsDescribeThemselves(t *testing.T) {
	c := start(t, nil).dial()
	for _, version := range []string{"2", "3"} {
		c.ask("HELLO", version)
		all := c.ask("COMMAND")
		if got := c.ask("COMMAND", "INFO"); got != all || !strings.Contains(all, "[$cl.throttle :") {
			t.Errorf("COMMAND:\n%s\nCOMMAND INFO:\n%s", all, got)
		}
		if docs := c.ask("COMMAND", "DOCS"); !strings.Contains(docs, "client|setinfo") {
			t.Error(docs)
		}
		for _, command := range []string{"CLIENT", "COMMAND", "CONFIG"} {
			if help := c.ask(command, "HELP"); !strings.HasPrefix(help, "*[+"+command+" <subcommand>") {
				t.Error(help)
			}
		}
		c.expect(":"+c.ask("COMMAND", "COUNT")[1:], "COMMAND", "COUNT")
		if list := c.ask("CLIENT", "LIST"); !strings.Contains(list, "id=1 addr=127.0.0.1:") {
			t.Error(list)
		}
		all = c.ask("INFO")
		for _, line := range []string{
			"# Server\r\nredis_version:7.2.0\r\n", "\r\nweir_state:serving\r\n", "\r\nconnected_clients:1\r\n", "\r\ncluster_enabled:0\r\n",
		} {
			if !strings.Contains(all, line) {
				t.Errorf("%q is not in INFO:\n%s", line, all)
			}
		}
		if got := c.ask("INFO", "replication", "CLUSTER"); got[1:] != "# Replication\r\nrole:master\r\nconnected_slaves:0\r\n\r\n# Cluster\r\ncluster_enabled:0\r\n" {
			t.Errorf("%q", got)
		}
		c.expect(c.ask("INFO", "nothing")[:1], "INFO", "nothing")
		if got := c.ask("TIME"); len(got) < len("*[$1700000000 $0]") {
			t.Error(got)
		}
	}
}

func TestReplies(t *testing.T) {
	c := start(t, nil).dial()
	c.send("CLIENT REPLY SKIP\nPING 1\nPING 2\nCLIENT REPLY OFF\nPING 3\nCLIENT REPLY SKIP\nNOTHING\nPING 4\nCLIENT REPLY ON\nPING 5\n" +
		"CLIENT REPLY SKIP\nCLIENT REPLY ON\nPING 6\n\r\n*0\r\nCLIENT REPLY x\n")
	for _, want := range []string{"$2", "+OK", "$5", "+OK", "$6", "-ERR syntax error"} {
		if got := c.receive(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestDrainIsTold(t *testing.T) {
	s := start(t, nil)
	c := s.dial()
	s.Drain()
	if got := c.ask("INFO", "server"); !strings.Contains(got, "weir_state:draining") || s.Status()["draining"] != true {
		t.Error(got)
	}
	s.dial().expect("+PONG", "PING")
}

func TestPassword(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.Password = "secret" })
	const noAuth, wrong = "-NOAUTH Authentication required.", "-WRONGPASS invalid username-password pair or user is disabled."
	c := s.dial()
	for _, command := range []string{"PING", "INFO", "NOTHING", "COMMAND", "CL.THROTTLE"} {
		c.expect(noAuth, command)
	}
	if got := c.ask("HELLO", "3"); !strings.HasPrefix(got, "-NOAUTH HELLO must be called") {
		t.Error(got)
	}
	c.expect(wrong, "AUTH", "Secret")
	c.expect(wrong, "AUTH", "other", "secret")
	c.expect(wrong, "HELLO", "3", "AUTH", "default", "")
	c.expect(noAuth, "PING")
	c.expect("+OK", "AUTH", "secret")
	c.expect("+PONG", "PING")
	c.expect("+RESET", "RESET")
	c.expect(noAuth, "PING")
	c.expect("+OK", "AUTH", "default", "secret")
	c.expect("+PONG", "PING")
	c.expect("+OK", "AUTH", "secret")

	c = s.dial()
	if got := c.ask("HELLO", "3", "AUTH", "default", "secret"); !strings.HasPrefix(got, "%[$server") {
		t.Error(got)
	}
	c.expect("$a", "ECHO", "a")

	c = s.dial()
	for range 10 {
		c.expect(wrong, "AUTH", "guess")
	}
	c.expectEnd()

	for stream, want := range map[string]string{
		"*11\r\n":          "-ERR Protocol error: unauthenticated multibulk length",
		"*1\r\n$20000\r\n": "-ERR Protocol error: unauthenticated bulk length",
	} {
		c = s.dial()
		c.send(stream)
		if got := c.receive(); got != want {
			t.Errorf("%q: %s, want %s", stream, got, want)
		}
		c.expectEnd()
	}
}
