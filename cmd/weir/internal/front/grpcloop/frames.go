package grpcloop

import (
	"encoding/binary"
	"math"
	"time"

	"golang.org/x/net/http2"
)

const (
	frameHeader = 9
	// maxFrame is how many bytes the payload of a frame may have, in both directions: clients need not accept longer ones.
	maxFrame = 16 << 10
	// streamWindow is how much a client may send of a call that is not read, and connWindow of all calls of a connection.
	streamWindow = 64 << 10
	connWindow   = 16 * streamWindow
	usualWindow  = 1<<16 - 1
	maxWindow    = math.MaxInt32
	// smallWindow is less than clients open the window of a connection by: most wait until a quarter of it is used.
	smallWindow = 1 << 10
	// maxHeader is how long the fields of a header may be: more than a proxy forwards.
	maxHeader = 64 << 10
	// maxContinuations is how many frames may continue a header, which has so many bytes at most as it was sent.
	maxContinuations = 32
)

// failure ends a connection.
type failure struct {
	code http2.ErrCode
	text string // for the client, in GOAWAY
	log  bool   // the client is hostile or broken, which is logged
}

// Error implements [error].
func (f *failure) Error() string { return f.code.String() + " " + f.text }

func protocol(text string) *failure  { return &failure{code: http2.ErrCodeProtocol, text: text} }
func frameSize(text string) *failure { return &failure{code: http2.ErrCodeFrameSize, text: text} }
func flooded(text string) *failure {
	return &failure{code: http2.ErrCodeEnhanceYourCalm, text: text, log: true}
}

// frame is the header of a frame.
type frame struct {
	kind   http2.FrameType
	flags  http2.Flags
	stream uint32
}

// frames processes the whole frames at the beginning of b until there is too much to write, and returns how many bytes they have.
func (c *conn) frames(b []byte) (used int, _ *failure) {
	for len(b)-used >= frameHeader && len(c.out) <= maxOut {
		head := b[used : used+frameHeader]
		length := int(head[0])<<16 | int(head[1])<<8 | int(head[2])
		if length > maxFrame {
			return used, frameSize("a frame is too long")
		}
		if len(b)-used-frameHeader < length {
			break
		}
		f := frame{http2.FrameType(head[3]), http2.Flags(head[4]), binary.BigEndian.Uint32(head[5:]) &^ (1 << 31)}
		payload := b[used+frameHeader : used+frameHeader+length]
		used += frameHeader + length
		if failed := c.frame(f, payload); failed != nil {
			return used, failed
		}
	}
	return used, nil
}

// frame processes one frame.
func (c *conn) frame(f frame, b []byte) *failure {
	if c.fresh.id != 0 && (f.kind != http2.FrameData || f.stream != c.fresh.id) {
		c.park()
	}
	switch {
	case c.continued != 0 && (f.kind != http2.FrameContinuation || f.stream != c.continued):
		return protocol("a header is not continued")
	case !c.greeted && f.kind != http2.FrameSettings:
		return protocol("the first frame is not SETTINGS")
	}
	switch f.kind {
	case http2.FrameData:
		return c.data(f, b)
	case http2.FrameHeaders:
		return c.headers(f, b)
	case http2.FrameContinuation:
		return c.continuation(f, b)
	case http2.FrameWindowUpdate:
		return c.windowUpdate(f, b)
	case http2.FrameRSTStream:
		return c.resetByClient(f, b)
	case http2.FrameSettings:
		return c.settings(f, b)
	case http2.FramePing:
		return c.ping(f, b)
	case http2.FramePushPromise:
		return protocol("a client cannot push")
	default:
		return c.idleTalk(f, b)
	}
}

// idleTalk processes frames that the loop has no use for.
func (c *conn) idleTalk(f frame, b []byte) *failure {
	switch f.kind { //nolint:exhaustive // the others have no rules, or are unknown
	case http2.FramePriority:
		switch {
		case f.stream == 0:
			return protocol("PRIORITY without a stream")
		case len(b) != 5:
			return c.fault(f.stream, http2.ErrCodeFrameSize)
		}
	case http2.FrameGoAway:
		switch {
		case f.stream != 0:
			return protocol("GOAWAY of a stream")
		case len(b) < 8:
			return frameSize("GOAWAY is too short")
		}
	}
	return c.mayFlood()
}

// unpad returns the payload without its padding.
func unpad(f frame, padded http2.Flags, b []byte) ([]byte, *failure) {
	if !f.flags.Has(padded) {
		return b, nil
	}
	if len(b) == 0 {
		return nil, frameSize("a frame has no length of its padding")
	}
	n := int(b[0])
	if b = b[1:]; n > len(b) {
		return nil, protocol("padding is longer than its frame")
	}
	return b[:len(b)-n], nil
}

// settings processes SETTINGS.
func (c *conn) settings(f frame, b []byte) *failure {
	switch {
	case f.flags.Has(http2.FlagSettingsAck) && len(b) > 0:
		return frameSize("the acknowledgment of SETTINGS has a payload")
	case f.stream != 0:
		return protocol("SETTINGS of a stream")
	case f.flags.Has(http2.FlagSettingsAck):
		if !c.greeted || c.agreed {
			return protocol("SETTINGS are acknowledged that were not sent")
		}
		c.agreed = true
		return nil
	case len(b)%6 != 0:
		return frameSize("SETTINGS are cut off")
	}
	window, was := c.firstWindow, c.firstWindow
	for ; len(b) > 0; b = b[6:] {
		id, v := http2.SettingID(binary.BigEndian.Uint16(b)), binary.BigEndian.Uint32(b[2:])
		if failed := check(id, v); failed != nil {
			return failed
		}
		switch {
		case id == http2.SettingInitialWindowSize:
			window = int64(v)
		case id == http2.SettingHeaderTableSize && v < usualTable:
			c.shrunk = true
		}
	}
	if failed := c.openStreams(window); failed != nil {
		return failed
	}
	c.out = appendFrame(c.out, 0, http2.FrameSettings, http2.FlagSettingsAck, 0)
	if !c.greeted {
		c.greeted = true
		_ = c.nc.SetReadDeadline(time.Time{}) // reading tells if it has failed
		return nil
	}
	if window != was {
		return c.mayLook()
	}
	return c.mayFlood()
}

// check finds settings that cannot be. A server does not open streams, and the loop sends no long frames, so that of the others
// only the window and the size of the table mean something.
func check(id http2.SettingID, v uint32) *failure {
	switch {
	case id == http2.SettingEnablePush && v > 1:
		return protocol("ENABLE_PUSH is neither 0 nor 1")
	case id == http2.SettingInitialWindowSize && v > maxWindow:
		return &failure{code: http2.ErrCodeFlowControl, text: "INITIAL_WINDOW_SIZE is too large"}
	case id == http2.SettingMaxFrameSize && (v < maxFrame || v >= 1<<24):
		return protocol("MAX_FRAME_SIZE is out of bounds")
	}
	return nil
}

// openStreams makes the window of all streams larger or smaller, as the first one is another. That is once for each SETTINGS, of
// which a client may fill a frame with nothing but windows.
func (c *conn) openStreams(first int64) *failure {
	change := first - c.firstWindow
	if c.firstWindow = first; change == 0 {
		return nil
	}
	for _, s := range c.streams {
		if s.window += change; s.window > maxWindow {
			return &failure{code: http2.ErrCodeFlowControl, text: "INITIAL_WINDOW_SIZE makes a window too large"}
		}
	}
	c.pumpAll()
	return nil
}

// windowUpdate processes WINDOW_UPDATE.
func (c *conn) windowUpdate(f frame, b []byte) *failure {
	if len(b) != 4 {
		return frameSize("WINDOW_UPDATE does not have 4 bytes")
	}
	n := int64(binary.BigEndian.Uint32(b) &^ (1 << 31))
	if f.stream == 0 {
		switch {
		case n == 0:
			return protocol("WINDOW_UPDATE of 0")
		case c.window+n > maxWindow:
			return &failure{code: http2.ErrCodeFlowControl, text: "WINDOW_UPDATE makes the window too large"}
		}
		if c.window += n; c.window > n || c.blocked == 0 {
			return nil
		}
		c.pumpAll()          // it was used up
		if n < smallWindow { // to look at all calls for so little costs more than it brings
			return c.mayLook()
		}
		return nil
	}
	if c.isIdle(f.stream) {
		return protocol("WINDOW_UPDATE of an idle stream")
	}
	s := c.streams[f.stream]
	switch {
	case n == 0:
		return c.fault(f.stream, http2.ErrCodeProtocol)
	case s == nil: // it has ended
	case s.window+n > maxWindow:
		return c.fault(f.stream, http2.ErrCodeFlowControl)
	default:
		s.window += n
		c.pump(s)
	}
	return nil
}

// resetByClient processes RST_STREAM.
func (c *conn) resetByClient(f frame, b []byte) *failure {
	switch {
	case len(b) != 4:
		return frameSize("RST_STREAM does not have 4 bytes")
	case f.stream == 0 || c.isIdle(f.stream):
		return protocol("RST_STREAM of an idle stream")
	}
	if s := c.streams[f.stream]; s != nil {
		c.drop(s)
	}
	if failed := c.mayFlood(); failed != nil {
		return &failure{code: failed.code, text: "too many calls were given up", log: true}
	}
	return nil
}

// Clients ping to know that the server is there: they may, so often that it costs the server nothing, or after it has sent
// something.
const (
	pingEvery  = 10 * time.Second
	maxStrikes = 2
)

// ping processes PING.
func (c *conn) ping(f frame, b []byte) *failure {
	switch {
	case len(b) != 8:
		return frameSize("PING does not have 8 bytes")
	case f.stream != 0:
		return protocol("PING of a stream")
	case f.flags.Has(http2.FlagPingAck):
		if c.leaving == announced && [8]byte(b) == leavePing {
			c.goAway()
		}
		return c.mayFlood()
	}
	c.out = append(appendFrame(c.out, len(b), http2.FramePing, http2.FlagPingAck, 0), b...)
	now := time.Now()
	switch {
	case c.replied:
		c.replied, c.strikes = false, 0
	case now.Sub(c.pinged) < pingEvery:
		if c.strikes++; c.strikes > maxStrikes {
			return &failure{code: http2.ErrCodeEnhanceYourCalm, text: "too_many_pings", log: true}
		}
	}
	c.pinged = now
	return nil
}

func appendFrame(b []byte, length int, kind http2.FrameType, flags http2.Flags, stream uint32) []byte {
	return append(b, byte(length>>16), byte(length>>8), byte(length), byte(kind), byte(flags),
		byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
}

func appendWindowUpdate(b []byte, stream uint32, n int) []byte {
	return binary.BigEndian.AppendUint32(appendFrame(b, 4, http2.FrameWindowUpdate, 0, stream), uint32(n))
}
