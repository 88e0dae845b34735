package respapi

// throttle answers CL.THROTTLE.
type throttle struct{}

func newThrottle(Options) (*throttle, error) { return &throttle{}, nil }

func (*throttle) commands() []command { return nil }

// status adds what there is to tell to that of the server.
func (*throttle) status(map[string]any) {}
