package serverflags

// Flag is a flag with its value.
type Flag struct{ Flag, Value string }

// Given are the flags by which another command reaches the same server in the same way: none if all are the defaults.
func (s *Server) Given() []Flag {
	var given []Flag
	add := func(flag, value, usual string) {
		if value != usual {
			given = append(given, Flag{flag, value})
		}
	}
	add("--server", s.url, Default)
	add("--token-file", s.tokenFile, "")
	add("--tls-ca", s.authority, "")
	add("--tls-cert", s.cert, "")
	add("--tls-key", s.key, "")
	return given
}
