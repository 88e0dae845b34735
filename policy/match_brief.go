package policy

// brief is what a rule is checked by first: it is short, so that those of thousands of rules are at hand.
type brief struct {
	has     conditions // that are not empty
	methods methodSet  // all methods of the rule; empty if there is one that is not among those below
}

// methodSet is a set of the usual methods.
type methodSet uint16

// usualMethod is the set of a method, empty if it is not usual.
func usualMethod(s string) methodSet {
	switch s {
	case "GET":
		return 1 << 0
	case "HEAD":
		return 1 << 1
	case "POST":
		return 1 << 2
	case "PUT":
		return 1 << 3
	case "PATCH":
		return 1 << 4
	case "DELETE":
		return 1 << 5
	case "OPTIONS":
		return 1 << 6
	case "CONNECT":
		return 1 << 7
	case "TRACE":
		return 1 << 8
	default:
		return 0
	}
}

func (m *matcher) brief() brief {
	var b brief
	for condition, n := range map[conditions]int{
		onMethod: len(m.methods), onHost: len(m.hosts), onPath: len(m.paths), onClient: len(m.clients), onRoute: len(m.routes),
		onProtocol: len(m.protocols),
	} {
		if n > 0 {
			b.has |= condition
		}
	}
	switch len(m.headers) {
	case 0:
	case 1:
		b.has |= onHeader
	default:
		b.has |= onHeaders
	}
	for _, s := range m.methods {
		usual := usualMethod(s)
		if usual == 0 {
			b.methods = 0
			break
		}
		b.methods |= usual
	}
	return b
}
