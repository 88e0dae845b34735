package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/screentest"
)

const administered = `version: 1
policies:
  login:
    key: client.ip
    limits:
      - {name: day, rate: 2/day, burst: 2}
      - {name: 1h, rate: 20/h, burst: 20}
    lockout: {refusals: 3, within: 1h, for: 15m}
  tenant:
    key: request.headers["x-tenant"]
    limits:
      - {rate: 1/h, burst: 3}
rules:
  - {name: logins, match: {path: /login}, limits: login}
  - {name: api, match: {path: /v1/items}, limits: tenant}
`

// administeredServer is a server with refusals: 192.0.2.7 is locked out of login, and the tenant acme has used all it has. It
// returns the ID of the refusal of the tenant.
func administeredServer(t *testing.T) (s *server, refusal string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weir.yaml")
	if err := os.WriteFile(path, []byte(administered), 0o600); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, "--config", path)
	for range 6 {
		s.decide(t, `{"path":"/login","method":"POST","client":"192.0.2.7"}`)
	}
	for range 4 {
		_, refusal = s.decide(t, acme)
	}
	if len(refusal) != 16 {
		t.Fatalf("the refusal %q", refusal)
	}
	return s, refusal
}

const acme = `{"path":"/v1/items","headers":{"X-Tenant":"acme"}}`

// decide asks for a decision, and returns its status and the ID of its refusal.
func (s *server) decide(t *testing.T, body string) (status int, refusal string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+s.address+"/v1/decide", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	return response.StatusCode, response.Header.Get("Weir-Refusal")
}

// ask runs a command against a server, which must succeed, and returns what it prints.
func (s *server) ask(t *testing.T, args ...string) string {
	t.Helper()
	got := weir(t, nil, append(args, "--server", "http://"+s.address)...)
	if got.status != 0 || got.stderr != "" {
		t.Fatalf("weir %q: %d %s", args, got.status, got.stderr)
	}
	return got.stdout
}

func hasAll(t *testing.T, what, text string, all ...string) {
	t.Helper()
	for _, want := range all {
		if !strings.Contains(text, want) {
			t.Errorf("%s: no %q in\n%s", what, want, text)
		}
	}
}

// TestFromRefusalToRule: one command leads from the ID that a client was told to the rule, the key and the numbers, and says by
// which command it is let through.
func TestFromRefusalToRule(t *testing.T) {
	s, id := administeredServer(t)
	why := s.ask(t, "why", id)
	hasAll(t, "why", why, "/v1/items by http", "refusal "+id+", configuration 1", `key "acme", by rule api (`, "1/h, burst 3 (decides)",
		"0 of 3 remaining", "refuses it: limited, retry after ", "\nnow:\nkey \"acme\" of policy tenant\n", "one more would be refused now",
		"weir admin override --policy tenant --key acme --unlimited --for 10m --reason ...")
	hasAll(t, "why", why, "--reason ... --server http://"+s.address+"\n")
	_, advice, _ := strings.Cut(why, "to change that:\n  weir ")
	got := weir(t, nil, strings.Fields(strings.Replace(advice, "...", "because", 1))...)
	if got.status != 0 || got.stderr != "" {
		t.Errorf("what was advised: %d %s", got.status, got.stderr)
	}
	hasAll(t, "override", got.stdout, "acme of tenant: unlimited for 10m")
	if status, _ := s.decide(t, acme); status != http.StatusOK {
		t.Errorf("it is still refused: %d", status)
	}
	hasAll(t, "why", s.ask(t, "why", "--policy", "tenant", "--key", "acme"), "overridden: unlimited, for another ", ", by local: because",
		"refusal "+id, "weir admin restore --policy tenant --key acme --reason ...")
	hasAll(t, "restore", s.ask(t, "admin", "restore", "--policy", "tenant", "--key", "acme", "--reason", "over"),
		"acme of tenant has the limits of the policy again")
	if status, _ := s.decide(t, acme); status != http.StatusTooManyRequests {
		t.Errorf("it is not refused again: %d", status)
	}
	hasAll(t, "explain", s.ask(t, "why", "--request", "/v1/items", "-H", "X-Tenant: acme", "--client", "192.0.2.1"),
		"GET /v1/items from 192.0.2.1:\n  refused, bound by tenant/1h", "rule api (", "matches", "rule logins (", "no match: path")
	var all struct {
		Refusal  map[string]any `json:"refusal"`
		Key      map[string]any `json:"key"`
		Refusals struct {
			Refusals []any `json:"refusals"`
		} `json:"refusals"`
	}
	if err := json.Unmarshal([]byte(s.ask(t, "why", id, "--json")), &all); err != nil || all.Refusal["id"] != id || all.Key["key"] != "acme" {
		t.Errorf("%v %+v", err, all)
	}
	text := s.ask(t, "why", "--policy", "tenant", "--key", "acme", "--json")
	if err := json.Unmarshal([]byte(text), &all); err != nil || len(all.Refusals.Refusals) != 2 {
		t.Errorf("%v %s", err, text)
	}
}

// TestOverridesThatDoNotHelp: an override of a key that no client has, or that is locked out, prints a warning.
func TestOverridesThatDoNotHelp(t *testing.T) {
	s, _ := administeredServer(t)
	override := func(policy, key string, limits ...string) string {
		t.Helper()
		return s.ask(t, append([]string{"admin", "override", "--policy", policy, "--key", key, "--reason", "a test"}, limits...)...)
	}
	hasAll(t, "why", s.ask(t, "why", "--policy", "tenant", "--key", "Acme"), "nothing is kept of this key", "keys of policy tenant are ")
	hasAll(t, "override", override("tenant", "Acme", "--unlimited"), "Acme of tenant: unlimited for 1h, in this server only\n",
		"nothing was kept of this key: is it the one that was refused?\nkeys of policy tenant are ")
	if got, want := override("tenant", "acme", "--unlimited"), "acme of tenant: unlimited for 1h, in this server only\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	hasAll(t, "override", override("login", "192.0.2.7", "--unlimited"), "192.0.2.7 of login: unlimited for 1h, in this server only\n",
		"it is still locked out for another ", `"weir admin unlock" ends that`)
	hasAll(t, "why", s.ask(t, "why", "--policy", "login", "--key", "192.0.2.7"), "locked out for another ", "weir admin unlock --policy login",
		"only unlock ends a lockout")
}

// TestAdminLooks asks with every command that changes nothing, for people and as JSON.
func TestAdminLooks(t *testing.T) {
	s, id := administeredServer(t)
	for args, want := range map[string][]string{
		"status":              {"configuration  ", "version 1, loaded ", "requests       10: 5 refused", "policies       2"},
		"policies":            {"login   enforce  local  day: 2/day, burst 2; 1h: 20/h, burst 20", "tenant  enforce"},
		"keys --policy login": {"192.0.2.7", "day 2/day, burst 2"},
		"key --policy tenant --key a": {
			"key \"a\" of policy tenant", "nothing is kept of this key", `keys of policy tenant are request.headers["x-tenant"]`,
		},
		"key 192.0.2.7": {
			`"192.0.2.7": refused now by 1 key; 1 of 2 policies cannot be searched for it`, `key "192.0.2.7" of policy login`,
			"locked out for another ", "not searched: policy tenant: an address does not tell", "refused ", "POST /login from 192.0.2.7",
		},
		"key acme":                {`"acme": refused now by 1 key`, `key "acme" of policy tenant`, "not searched: policy login: ", id},
		"key 192.0.2.8":           {`"192.0.2.8": no policy is known to track it; 1 of 2`, `nothing is kept of it by login (key "192.0.2.8")`},
		"lockouts":                {"login   192.0.2.7"},
		"refusals --policy login": {"login/day  192.0.2.7  POST /login from 192.0.2.7 by http", "5 were noted since the start"},
		"refusals --key acme":     {id},
		"refusals --policy gone":  {"none of the refusals that are kept is of these", "no policy gone is in force"},
		"report --policy login":   {"policy login", "192.0.2.7"},
		"overrides":               {"no key is overridden"},
		"config":                  {"logins", "path /login"},
		"replicas":                {"no limits are shared"},
		"audit":                   {"nothing has been changed since the server started"},
	} {
		command := append([]string{"admin"}, strings.Fields(args)...)
		hasAll(t, args, s.ask(t, command...), want...)
		var v any
		if text := s.ask(t, append(command, "--json")...); json.Unmarshal([]byte(text), &v) != nil || strings.Count(text, "\n") != 1 {
			t.Errorf("%s --json: %s", args, text)
		}
	}
	if text := s.ask(t, "admin", "config", "--text"); text != administered {
		t.Errorf("%q", text)
	}
}

var aWait = regexp.MustCompile(`retry after [^:]+:`)

// TestAdminChanges makes every change, is told how the key is then, and finds it in the audit log.
func TestAdminChanges(t *testing.T) {
	s, _ := administeredServer(t)
	key := []string{"--policy", "login", "--key", "192.0.2.7", "--reason", "a reason"}
	const (
		stillRefused = "one more would be refused now by limit day: limited, retry after some time: " +
			"\"weir admin reset\" gives back what it has used\n"
		unknown = "nothing was kept of this key: is it the one that was refused?\n" +
			"keys of policy login are client.ip, written as \"weir admin keys\" and \"weir admin refusals\" show them\n"
	)
	for _, c := range []struct {
		args []string
		want string
	}{
		{append([]string{"unlock"}, key...), "192.0.2.7 of login is let in again\n" + stillRefused},
		{append([]string{"unlock"}, key...), "192.0.2.7 of login was not locked out\n" + stillRefused},
		{append([]string{"reset"}, key...), "192.0.2.7 of login has all of its limits again\n"},
		{
			append([]string{"override", "--limit", "day=100/m, burst 50", "--limit", "1h=1000/h", "--for", "90m"}, key...),
			"192.0.2.7 of login: 1h = 1000/h; day = 100/m, burst 50 for 1h30m, in this server only\n" + unknown,
		},
		{append([]string{"restore"}, key...), "192.0.2.7 of login has the limits of the policy again\n"},
		{append([]string{"restore"}, key...), "192.0.2.7 of login was not overridden\n"},
		{
			[]string{"reset", "--policy", "login", "--key", "bob", "--reason", "a reason"},
			"bob of login has all of its limits again\n" + unknown,
		},
		{[]string{"reload", "--reason", "a reason"}, "version 2 is in force, nothing has changed\n"},
	} {
		got := s.ask(t, append([]string{"admin"}, c.args...)...)
		if got = aWait.ReplaceAllString(got, "retry after some time:"); got != c.want {
			t.Errorf("%q: %q, want %q", c.args, got, c.want)
		}
	}
	audit := s.ask(t, "admin", "audit")
	hasAll(t, "audit", audit, "unlock ", "reset ", "override ", "restore ", "reload ", "a reason", "local", "127.0.0.1")
	if n := strings.Count(audit, "\n"); n != 9 {
		t.Errorf("%d lines in\n%s", n, audit)
	}
}

// TestLimitsByName: of a policy with several limits one can be overridden by its name, and a command that leaves that out prints
// which names there are.
func TestLimitsByName(t *testing.T) {
	s, _ := administeredServer(t)
	args := []string{"admin", "override", "--policy", "login", "--key", "192.0.2.8", "--reason", "r", "--server", "http://" + s.address, "--limit"}
	got := weir(t, nil, append(args, "5/s")...)
	want := `weir: --limit "5/s": needs the name of the limit, as policy "login" has several: 1h, day; such as --limit "day=5/s"; run `
	if got.status != 2 || !strings.HasPrefix(got.stderr, want) {
		t.Errorf("%d %s, want %s", got.status, got.stderr, want)
	}
	if got = weir(t, nil, append(args, "day=5/s")...); got.status != 0 || !strings.HasPrefix(got.stdout, "192.0.2.8 of login: day = 5/s for 1h, in this server only\n") {
		t.Errorf("%d %s%s", got.status, got.stdout, got.stderr)
	}
	hasAll(t, "key", s.ask(t, "admin", "key", "--policy", "login", "--key", "192.0.2.8"), "limit day: 5/s, burst 5\n", "limit 1h: 20/h, burst 20\n")
}

// TestAdminWithAToken: a command without one prints what to give.
func TestAdminWithAToken(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	for path, text := range map[string]string{token: "0123456789abcdef0123\n", token + "2": "alice 0123456789abcdef0123", token + "3": "wrong-wrong-wrong-wrong"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := startServer(t, "--admin-token-file", token)
	at := "http://" + s.address
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{nil, 2, "give --token-file, with the file of its --admin-token-file"},
		{[]string{"--token-file", token + "3"}, 2, "does not know the token of --token-file"},
		{[]string{"--token-file", token + "4"}, 2, "no such file"},
		{[]string{"--tls-ca", token}, 2, "has no certificate in PEM"},
		{[]string{"--tls-cert", token}, 2, "--tls-cert and --tls-key need each other"},
		{[]string{"--token-file", token}, 0, ""},
		{[]string{"--token-file", token + "2"}, 0, ""},
	} {
		got := weir(t, nil, append([]string{"admin", "status", "--server", at}, c.args...)...)
		if got.status != c.status || !strings.Contains(got.stderr, c.want) {
			t.Errorf("%q: %d %s", c.args, got.status, got.stderr)
		}
	}
}

func TestMisusedAdmin(t *testing.T) {
	s := startServer(t)
	at := "http://" + s.address
	for args, want := range map[string]string{
		"admin unlok":                          `admin has no command "unlok"; did you mean "unlock"?`,
		"admin unlock --policy p":              "needs --reason (why, for the audit log, in at most 1024 bytes); run",
		"admin keys":                           "needs --policy (the name of the policy); run",
		"admin unlock":                         "needs --policy (the name of the policy) and --reason (why, ",
		"admin key --policy q":                 `there are: default`,
		"admin override --policy p --reason r": "override needs --limit or --unlimited, and not both",
		"admin override --policy p --reason r --limit a=1/s --limit a=":    `--limit "a=": must be a limit such as`,
		"admin override --policy p --reason r --limit 1/s --limit 2/s":     `--limit "2/s": the limit is given twice: must be given once, or as NAME=100/s for each`,
		"admin override --policy p --reason r --limit a=1/s --limit a=2/s": `--limit "a=2/s": limit "a" is given twice: must be given once`,
		"admin override --policy p --for 1ms":                              `--for "1ms": must be a duration`,
		"admin refusals --last 5000":                                       `--last "5000": must be a whole number from 1 to 4096`,
		"admin status now":                                                 `unexpected argument "now"`,
		"why":                                                              "why needs an ID",
		"why a b":                                                          "why needs one ID, not 2",
		"why a --policy p":                                                 "an ID, --policy and --request cannot be combined",
		"why --key k":                                                      "--key needs --policy",
		"why --client 192.0.2.1":                                           "--client needs --request",
		"admin key":                                                        "key needs a WORD, such as the address of a client, or --policy and --key",
		"cluster remove":                                                   "remove needs NODE, not 0 arguments",
		"cluster add node1":                                                "add needs NODE and URL, not 1 argument",
		"admin key a b":                                                    "key needs one WORD, not 2",
		"admin key a --key b":                                              "a WORD and --policy or --key cannot be combined",
		"why 192.0.2.1":                                                    `"weir admin key 192.0.2.1" shows what is known of a client`,
		"why nonsense":                                                     `id "nonsense": must be the 16 hexadecimal digits`,
		"why --policy none":                                                `policy "none": there is no policy of this name`,
		"admin unlock --policy default --reason r":                         `needs --key: keys of policy default are `,
	} {
		command := strings.Fields(args)
		if args != "admin unlok" {
			command = append(command, "--server", at)
		}
		if got := weir(t, nil, command...); got.status != 2 || !strings.Contains(got.stderr, want) || got.stdout != "" {
			t.Errorf("%s: %d %s", args, got.status, got.stderr)
		}
	}
	completed := weir(t, nil, "__complete", "admin", "keys", "--server", at, "--policy", "")
	if !strings.HasPrefix(completed.stdout, "default\t") || !strings.HasSuffix(completed.stdout, ":4\n") {
		t.Errorf("%q", completed.stdout)
	}
	completed = weir(t, nil, "__complete", "why", "--server", "http://127.0.0.1:1", "--policy", "")
	if completed.stdout != ":4\n" {
		t.Errorf("%q", completed.stdout)
	}
}

// TestTopOfAServer looks at a server in a terminal: from a refusal to its rule with three keys, an unlock and an override.
func TestTopOfAServer(t *testing.T) {
	s, id := administeredServer(t)
	cmd := command(t, "top", "--server", "http://"+s.address)
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "LANG=C.UTF-8")
	screen := screentest.Start(t, cmd, 110, 30)
	screen.Shows("live", "> ", "login", "tenant", "(weir.yaml)")
	screen.Press("5")
	screen.Shows("[5 refusals]", id)
	screen.Press("enter")
	screen.Shows("refusal "+id, `key "acme", by rule api (`, "0 of 3 remaining")
	screen.Press("esc")
	screen.Shows("[5 refusals]", "p pause")
	screen.Press("o")
	screen.Shows("override acme of tenant", "1/h, burst 3")
	screen.Press("ctrl+u", "100/s, burst 200", "enter", "enter", "launch day", "enter")
	screen.Shows("override acme of tenant: 1h = 100/s, burst 200 for 10m: launch day", "Do it?")
	screen.Press("y")
	screen.Shows("acme of tenant: 1h = 100/s, burst 200 for 10m ", "p pause") // the question has more behind it
	if status, _ := s.decide(t, acme); status != http.StatusOK {
		t.Errorf("it is still refused: %d", status)
	}
	screen.Press("4")
	screen.Shows("[4 overrides]", "launch day")
	screen.Press("3")
	screen.Shows("[3 lockouts]", "192.0.2.7")
	screen.Press("u")
	screen.Shows("> reason")
	screen.Press("typo", "enter")
	screen.Shows("Do it?")
	screen.Press("y")
	screen.Shows("192.0.2.7 of login is let in again", "no key that is known by name is locked out by this server")
	hasAll(t, "audit", s.ask(t, "admin", "audit"), "unlock", "typo", "override", "launch day")
	screen.Press("q")
	if err := screen.Ended(); err != nil {
		t.Error(err)
	}
}

// TestTopOnceOfAServer prints a frame for scripts.
func TestTopOnceOfAServer(t *testing.T) {
	s, _ := administeredServer(t)
	hasAll(t, "top", s.ask(t, "top", "--once"), "requests/s: ", "refused/s▼", "login  ", "2/day, burst 2")
	hasAll(t, "top", s.ask(t, "top", "--once", "--pane", "keys", "--policy", "tenant"), "acme", "1/h, burst 3")
}
