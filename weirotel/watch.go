package weirotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/internal/fold"
	"github.com/weirhq/weir/policy"
	"github.com/weirhq/weir/store"
)

// observation is an instrument that is asked for its values at each collection of S.
type observation[S any] struct {
	name, unit, help string
	// now tells that it is what there is now, and can go down. Otherwise it counts.
	now  bool
	each func(s *S, emit emitter)
}

// emitter takes a value with its attributes.
type emitter func(value int64, attributes ...attribute.KeyValue)

// Watch has the reports of an engine observed, from [policy.Engine.Report], at each collection until Close. What is watched
// twice counts twice, also by two Instruments of one MeterProvider, and several engines are added up. The error is an
// *[weir.OptionError] if the function is nil, or that of the MeterProvider.
func (i *Instruments) Watch(report func() policy.Report) error {
	if report == nil {
		return noFunction("report")
	}
	folded := fold.NewReports(MaxNames, Other)
	return watch(i, func() policy.Report {
		r, _, _ := folded.Fold(report)
		return r
	}, ofEngine)
}

// WatchFleet has the state of a [store.Fleet] observed, from its Stats, as Watch does.
func (i *Instruments) WatchFleet(stats func() store.FleetStats) error {
	if stats == nil {
		return noFunction("stats")
	}
	return watch(i, stats, ofFleet)
}

// noFunction is the error of a call that was given nothing to ask: otherwise the first collection would panic.
func noFunction(argument string) error {
	return &weir.OptionError{Option: argument, Value: "nil", Accepted: "a function that returns the counts"}
}

func watch[S any](i *Instruments, read func() S, all []observation[S]) error {
	instruments := make([]metric.Int64Observable, len(all))
	observables := make([]metric.Observable, len(all))
	errs := make([]error, len(all))
	for at := range all {
		o := &all[at]
		instruments[at], errs[at] = o.instrument(i.meter)
		observables[at] = instruments[at]
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	w, err := i.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		s := read()
		for at := range all {
			all[at].each(&s, func(value int64, attributes ...attribute.KeyValue) {
				to.ObserveInt64(instruments[at], value, metric.WithAttributes(attributes...))
			})
		}
		return nil
	}, observables...)
	if err != nil {
		return err
	}
	i.lock.Lock()
	defer i.lock.Unlock()
	i.watched = append(i.watched, w)
	return nil
}

// instrument makes it.
//
//nolint:ireturn // as the API has it
func (o *observation[S]) instrument(m metric.Meter) (metric.Int64Observable, error) {
	if o.now {
		return m.Int64ObservableUpDownCounter(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.help))
	}
	return m.Int64ObservableCounter(o.name, metric.WithUnit(o.unit), metric.WithDescription(o.help))
}
