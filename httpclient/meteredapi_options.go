package httpclient

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/nils"
	"github.com/weirhq/weir/store"
)

// mostQueued is how many permits can be waited for at most.
const mostQueued = 1_000_000_000_000_000

// check says what of the options, whose defaults are filled in, cannot be.
func (o *MeteredOptions) check() error {
	const (
		of          = "MeteredOptions."
		longest     = 256 // bytes of a policy
		millisecond = time.Millisecond
	)
	switch {
	case o.Limits == nil:
		return optionError(of+"Limits", "nil", "the limits of a cluster, such as a *durable.Node")
	case nils.Is(o.Limits):
		return optionError(of+"Limits", fmt.Sprintf("a nil %T", o.Limits), "the limits of a cluster, such as a *durable.Node")
	case len(o.Policy) > longest:
		return optionError(of+"Policy", fmt.Sprintf("%.40q of %d bytes", o.Policy, len(o.Policy)), "at most 256 bytes")
	case o.Limit.Algorithm() == weir.AlgorithmConcurrency:
		return optionError(of+"Limit", o.Limit.String(), "of another algorithm than concurrency")
	case o.ReserveFor < millisecond || o.ReserveFor > store.MaxWait:
		return optionError(of+"ReserveFor", o.ReserveFor.String(), "from 1ms to 24h, or 0 for 10m")
	case o.MaxWait < millisecond || o.MaxWait > store.MaxWait:
		return optionError(of+"MaxWait", o.MaxWait.String(), "from 1ms to 24h, or 0 for 30s")
	case o.QueueLimit < NoQueue || o.QueueLimit > mostQueued:
		return optionError(of+"QueueLimit", strconv.FormatInt(o.QueueLimit, 10), "from 1 to 10^15, or NoQueue, or 0 for 10000")
	case o.Limit != (weir.Limit{}):
		err := o.Limit.Check()
		if option, ok := errors.AsType[*weir.OptionError](err); ok {
			return optionError(of+option.Option, option.Value, option.Accepted)
		}
		return err
	}
	return nil
}
