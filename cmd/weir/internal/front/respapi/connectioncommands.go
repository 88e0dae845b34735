package respapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"strconv"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/resp"
)

// compatible is the version of Redis whose connections and replies these are.
const compatible = "7.2.0"

// databases is how many SELECT knows. They are all the same one.
const databases = 16

// mostWrong is how many wrong passwords a connection may give.
const mostWrong = 10

// connectionCommands are about the connection and who uses it.
type connectionCommands struct{}

func (connectionCommands) commands() []command {
	return append(grouped(connectionGroup, nil,
		spec{"auth", -2, noAuth | fast, 0, "[username] password", "Authenticates the connection", auth},
		spec{
			"echo", 2, fast, 0, "message", "Answers the message",
			func(_ *conn, w *resp.Writer, args [][]byte) { w.Bulk(args[1]) },
		},
		spec{
			"hello", -1, noAuth | fast, 0, "[protover] [AUTH username password] [SETNAME clientname]",
			"Chooses the version of the protocol", hello,
		},
		spec{"ping", -1, fast, 0, "[message]", "Answers PONG, or the message", ping},
		spec{"quit", -1, noAuth | fast, 0, "", "Closes the connection", quit},
		spec{"reset", 1, noAuth | fast, 0, "", "Makes the connection like a new one", reset},
		spec{
			"select", 2, fast, 0, "index", "Is accepted for clients that choose a database: all are the same one", selectDB,
		},
	), container("client", "Tells of connections, and changes this one", 0, clientSubcommands()...))
}

func ping(_ *conn, w *resp.Writer, args [][]byte) {
	switch len(args) {
	case 1:
		w.Simple("PONG")
	case 2:
		w.Bulk(args[1])
	default:
		wrongArity(w, "ping")
	}
}

func quit(c *conn, w *resp.Writer, _ [][]byte) {
	w.OK()
	c.ending = true
}

func reset(c *conn, w *resp.Writer, _ [][]byte) {
	c.setProto(resp.RESP2)
	c.setStranger(c.s.o.Password != "")
	c.mute = mute{}
	info := *c.info.Load()
	info.name = ""
	c.info.Store(&info)
	w.Simple("RESET")
}

func selectDB(_ *conn, w *resp.Writer, args [][]byte) {
	switch i, err := strconv.Atoi(string(args[1])); {
	case err != nil:
		w.Error("ERR value is not an integer or out of range")
	case i < 0 || i >= databases:
		w.Error("ERR DB index is out of range")
	default:
		w.OK()
	}
}

func (c *conn) setProto(version int) { c.proto, c.w.Proto = version, version }

func (c *conn) setStranger(is bool) {
	c.stranger, c.parser.Stranger = is, is
	if !c.use() {
		c.ending = true
	}
}

// authenticate reports whether the client may go on. It takes the same time whatever is wrong with a password.
func (c *conn) authenticate(w *resp.Writer, user string, password []byte) bool {
	sum := sha256.Sum256(password)
	right := subtle.ConstantTimeCompare(sum[:], c.s.password[:]) == 1 || c.s.o.Password == ""
	if right && user == "default" {
		c.wrong = 0
		c.setStranger(false)
		return true
	}
	w.Error("WRONGPASS invalid username-password pair or user is disabled.")
	if c.wrong++; c.wrong == mostWrong {
		c.ending = true
	}
	c.s.tellOfWrong(c)
	return false
}

// tellOfWrong logs, at most once a minute, that passwords are wrong: a client may be guessing.
func (s *Server) tellOfWrong(c *conn) {
	n := s.wrongPasswords.Add(1)
	now, last := time.Now().Unix(), s.toldOfWrong.Load()
	if now-last >= 60 && s.toldOfWrong.CompareAndSwap(last, now) {
		s.log.Warn("a RESP client has given a wrong password", "client", c.plain.RemoteAddr().String(), "wrong_in_all", n)
	}
}

func auth(c *conn, w *resp.Writer, args [][]byte) {
	user, password := "default", args[len(args)-1]
	switch {
	case len(args) > 3:
		w.Error("ERR syntax error")
		return
	case len(args) == 3:
		user = string(args[1])
	case c.s.o.Password == "":
		w.Error("ERR AUTH <password> called without any password configured for the default user. " +
			"Are you sure your configuration is correct?")
		return
	}
	if c.authenticate(w, user, password) {
		w.OK()
	}
}

func hello(c *conn, w *resp.Writer, args [][]byte) {
	version := c.proto
	if len(args) > 1 {
		var err error
		switch version, err = strconv.Atoi(string(args[1])); {
		case err != nil:
			w.Error("ERR Protocol version is not an integer or out of range")
			return
		case version != resp.RESP2 && version != resp.RESP3:
			w.Error("NOPROTO unsupported protocol version")
			return
		}
	}
	var user, password, name []byte
	for i := 2; i < len(args); {
		switch left := len(args) - i - 1; {
		case equalFold(args[i], "auth") && left >= 2:
			user, password = args[i+1], args[i+2]
			i += 3
		case equalFold(args[i], "setname") && left >= 1:
			if name = args[i+1]; !isName(name) {
				w.Error(badName("Client names"))
				return
			}
			i += 2
		default:
			w.Error("ERR Syntax error in HELLO option '" + clip(args[i]) + "'")
			return
		}
	}
	if password != nil && !c.authenticate(w, string(user), password) {
		return
	}
	if c.stranger {
		w.Error("NOAUTH HELLO must be called with the client already authenticated, otherwise the " +
			"HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client " +
			"and select the RESP protocol version at the same time")
		return
	}
	if name != nil {
		c.setName(name)
	}
	c.setProto(version)
	w.Any(resp.Pairs{
		"server", "weir", "version", compatible, "weir_version", weirVersion, "proto", version, "id", int(c.id),
		"mode", "standalone", "role", "master", "modules",
		[]any{},
	})
}

// weirVersion is that of the program.
var weirVersion = flags.Version()
