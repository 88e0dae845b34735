package respapi

import (
	"bytes"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/resp"
	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/manualclock"
)

// timeless are the commands about the connection without those that tell how it has been used, and when.
type timeless struct{}

func (timeless) commands() []command {
	all := connectionCommands{}.commands()
	for i := range all {
		if run := all[i].run; all[i].name == "client" {
			all[i].run = func(c *conn, w *resp.Writer, args [][]byte) {
				if len(args) > 1 && (equalFold(args[1], "info") || equalFold(args[1], "list")) {
					w.OK()
					return
				}
				run(c, w, args)
			}
		}
	}
	return all
}

// FuzzConnection: whatever a client sends, it is answered the same whether it comes at once, a byte at a time, or in pieces.
func FuzzConnection(f *testing.F) {
	var pipeline []byte
	for _, key := range []string{"a", "b", "a", "longer"} {
		pipeline = respclient.AppendCommand(pipeline, "CL.THROTTLE", key, "3", "30", "60")
	}
	for _, s := range []string{
		string(pipeline), string(pipeline[:len(pipeline)-3]) + "PING\r\n",
		"cl.throttle 'a b' 1 1 1\r\nPING \"\\x41\"\nECHO\r\n*0\r\n\r\n*-1\r\n*1\r\n$4\r\nQUIT\r\nPING\r\n",
		"HELLO 3\r\nWEIR.TAKE default k 3\r\nWEIR.PEEK default k\r\nWEIR.TAKEALL default k 1 default j 2\r\nRESET\r\nWEIR.QUERY default k\r\n",
		"MULTI\r\nCL.THROTTLE a 1 1 1\r\nCLIENT REPLY SKIP\r\nPING\r\nEXEC\r\nCLIENT REPLY OFF\r\nPING\r\nCLIENT REPLY ON\r\n",
		"GCRA k 1 1 0.5 TOKENS 2\r\nCOMMAND DOCS gcra\r\nCOMMAND GETKEYS GCRA k 1 1 1\r\nCLIENT SETNAME x\r\nCLIENT GETNAME\r\n*x\r\n",
		"AUTH wrong\r\nSELECT 1\r\nHELLO 4\r\nCONFIG GET *\r\nPOST / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		f.Add([]byte(s), byte(7))
	}
	f.Fuzz(func(t *testing.T, stream []byte, size byte) {
		clock := manualclock.New(0)
		var want []byte
		for i, most := range []int{1, len(stream) + 1, 1 + int(size)} {
			c, r := pipelined(t, clock)
			var err error
			if c.s.commands, err = newRegister(timeless{}, c.s.throttle); err != nil {
				t.Fatal(err)
			}
			for rest := stream; len(rest) > 0; {
				n := min(most, len(rest))
				piece := bytes.Clone(rest[:n])
				c.get(t, piece)
				clear(piece)
				rest = rest[n:]
			}
			if i == 0 {
				want = r.sent
			} else if !bytes.Equal(r.sent, want) {
				t.Fatalf("%q in pieces of %d: the replies are %q, by bytes %q", stream, most, r.sent, want)
			}
		}
	})
}
