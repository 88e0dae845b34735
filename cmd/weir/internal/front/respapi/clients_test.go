package respapi_test

import (
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"github.com/weirhq/weir/cmd/weir/internal/front/respapi"
)

// unhurried is how long clients wait for the server: by default most give up after a few seconds.
const unhurried = 2 * time.Minute

// program runs a program of Redis against the server, and returns what it prints.
func (s *server) program(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is missing: `make deps` installs it on Debian", name)
	}
	host, port, err := net.SplitHostPort(s.address)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, append([]string{"-h", host, "-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.Password = "secret" })
	session := "PING\nECHO \"a b\\x21\"\nSELECT 3\nCLIENT SETNAME cli\nCLIENT GETNAME\nCONFIG GET save\nCL.THROTTLE key 15 30 60\nNOTHING\nPING a b\n"
	for version, settings := range map[string]string{"-2": "1) \"save\"\n2) \"\"\n", "-3": "1# \"save\" => \"\"\n"} {
		got := s.program(t, session, "redis-cli", version, "--no-auth-warning", "-a", "secret", "--no-raw")
		want := "PONG\n\"a b!\"\nOK\nOK\n\"cli\"\n" + settings +
			"1) (integer) 0\n2) (integer) 16\n3) (integer) 15\n4) (integer) -1\n5) (integer) 2\n" +
			"(error) ERR unknown command 'NOTHING', with args beginning with: \n(error) ERR wrong number of arguments for 'ping' command\n"
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", version, got, want)
		}
		session = strings.Replace(session, "THROTTLE key", "THROTTLE another", 1)
	}
	for _, args := range [][]string{{"COMMAND", "DOCS"}, {"-3", "COMMAND", "DOCS"}, {"COMMAND"}, {"INFO"}, {"CLIENT", "LIST"}} {
		got := s.program(t, "", "redis-cli", append([]string{"--no-auth-warning", "-a", "secret"}, args...)...)
		if strings.HasPrefix(got, "ERR") || len(got) < 30 {
			t.Errorf("%q: %s", args, got)
		}
	}
	// Without the password.
	if got := s.program(t, "", "redis-cli", "PING"); got != "NOAUTH Authentication required.\n\n" {
		t.Errorf("%q", got)
	}
	// Any number of commands as fast as they can be sent.
	if got := s.program(t, "AUTH secret\r\n"+strings.Repeat("PING\r\n", 20_000), "redis-cli", "--pipe"); !strings.Contains(got, "errors: 0, replies: 20001") {
		t.Error(got)
	}
}

func TestRedisBenchmark(t *testing.T) {
	s := start(t, nil)
	for _, args := range [][]string{
		{"-t", "ping"},
		{"-3", "cl.throttle", "__rand_int__", "15", "30", "60"},
	} {
		got := s.program(t, "", "redis-benchmark", append([]string{"-P", "16", "-c", "10", "-n", "20000", "-r", "1000", "--csv"}, args...)...)
		if !strings.Contains(got, `"rps"`) || strings.Contains(got, "WARN") || strings.Contains(strings.ToLower(got), "error") {
			t.Errorf("%q: %s", args, got)
		}
	}
	if got, ok := s.Status()["commands"].(int64); !ok || got < 60_000 {
		t.Errorf("%d commands", got)
	}
}

func TestGoRedis(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.Password = "secret" })
	for _, version := range []int{2, 3} {
		c := redis.NewClient(&redis.Options{
			Addr: s.address, Password: "secret", Protocol: version, DB: 1, ClientName: "go", PoolSize: 2,
			DialTimeout: unhurried, ReadTimeout: unhurried, WriteTimeout: unhurried,
		})
		ctx := t.Context()
		if got, err := c.Ping(ctx).Result(); got != "PONG" || err != nil {
			t.Error(got, err)
		}
		got, err := c.Do(ctx, "CL.THROTTLE", "go-redis", 15, 30, 60, 0).Int64Slice()
		if err != nil || len(got) != 5 || got[0] != 0 || got[1] != 16 || got[2] != 16 {
			t.Error(got, err)
		}
		if name, wrong := c.ClientGetName(ctx).Result(); name != "go" || wrong != nil {
			t.Error(name, wrong)
		}
		info, err := c.ClientInfo(ctx).Result()
		if err != nil || info.Name != "go" || info.LibName == "" {
			t.Error(info, err)
		}
		commands, err := c.Command(ctx).Result()
		if err != nil || commands["cl.throttle"] == nil || commands["cl.throttle"].FirstKeyPos != 1 {
			t.Error(commands, err)
		}
		if list, wrong := c.CommandList(ctx, nil).Result(); wrong != nil || len(list) != len(commands) {
			t.Error(list, wrong)
		}
		if text, wrong := c.Info(ctx, "server").Result(); wrong != nil || !strings.Contains(text, "redis_version:") {
			t.Error(text, wrong)
		}
		answers, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for range 1000 {
				p.Echo(ctx, "x")
			}
			return nil
		})
		if err != nil || len(answers) != 1000 {
			t.Error(len(answers), err)
		}
		err = c.Get(ctx, "x").Err()
		if answered, ok := errors.AsType[redis.Error](err); !ok || !strings.HasPrefix(answered.Error(), "ERR unknown command 'get'") {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	c := redis.NewClient(&redis.Options{Addr: s.address, Password: "wrong", MaxRetries: -1, DialTimeout: unhurried, ReadTimeout: unhurried})
	defer c.Close()
	if err := c.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") {
		t.Error(err)
	}
}

func TestRueidis(t *testing.T) {
	s := start(t, func(o *respapi.Options) { o.Password = "secret" })
	usual := rueidis.ClientOption{
		InitAddress: []string{s.address}, Password: "secret", ClientName: "ru", SelectDB: 2,
		Dialer: net.Dialer{Timeout: unhurried}, ConnWriteTimeout: unhurried,
	}
	for name, change := range map[string]func(o *rueidis.ClientOption){
		"as it comes":         func(*rueidis.ClientOption) {},
		"DisableCache":        func(o *rueidis.ClientOption) { o.DisableCache = true },
		"AlwaysRESP2":         func(o *rueidis.ClientOption) { o.DisableCache, o.AlwaysRESP2 = true, true },
		"NoEvict and NoTouch": func(o *rueidis.ClientOption) { o.ClientNoEvict, o.ClientNoTouch = true, true },
	} {
		t.Run(name, func(t *testing.T) {
			o := usual
			change(&o)
			c, err := rueidis.NewClient(o)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got, err := c.Do(ctx, c.B().Arbitrary("CL.THROTTLE").Keys(name).Args("15", "30", "60").Build()).AsIntSlice()
			if err != nil || len(got) != 5 || got[0] != 0 || got[2] != 15 {
				t.Error(got, err)
			}
			var batch rueidis.Commands
			for range 1000 {
				batch = append(batch, c.B().Echo().Message("x").Build())
			}
			for _, r := range c.DoMulti(ctx, batch...) {
				if text, err := r.ToString(); text != "x" || err != nil {
					t.Fatal(text, err)
				}
			}
		})
	}
	// What would be kept is refused, and says why.
	c, err := rueidis.NewClient(usual)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	err = c.DoCache(t.Context(), c.B().Get().Key("k").Cache(), time.Second).Error()
	if err == nil || !strings.Contains(err.Error(), "unknown command") {
		t.Error(err)
	}
	usual.ClientTrackingOptions = []string{"BCAST"}
	if c, err := rueidis.NewClient(usual); !errors.Is(err, rueidis.ErrNoCache) {
		t.Errorf("error %v, want ErrNoCache", err)
		c.Close()
	}
}
