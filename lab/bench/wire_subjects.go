package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// wireSubject is a server that the rows compare.
type wireSubject struct {
	By, Call string
	kind     redisKind
	open     func(ctx context.Context, f *wireFleet) (*wireServer, error)
	// address is the one that is asked, of a server that runs.
	address func(s *wireServer) string
	// flags are those of the load generator, beside those of the load.
	flags func(ctx context.Context, s *wireServer) ([]string, error)
	// fill has the server know so many keys; nil if it keeps none.
	fill func(ctx context.Context, s *wireServer, keys int) error
}

// The names of the subjects, beside byWeir.
const (
	byIncr      = "Redis INCR"
	byBareRESP  = "bare Go RESP"
	byBareGRPC  = "bare grpc-go"
	byBareLoop  = "bare loop"
	byRateLimit = "grpc-go and Redis"
	byBareHTTP  = "bare net/http"
)

// wireKey is what keys begin with.
const wireKey = "key:"

// The limit of every key: so high that it refuses no request, and so slow that no key is forgotten before the end.
const (
	wireBurst  = 1_000_000
	wirePeriod = 1000 // seconds, in each of which one permit comes back
)

// throttleCommand is how weir is asked.
func throttleCommand(key string) []string {
	return []string{"CL.THROTTLE", key, strconv.Itoa(wireBurst - 1), "1", strconv.Itoa(wirePeriod)}
}

// startWeir starts weir with all its fronts.
func startWeir(ctx context.Context, f *wireFleet) (*wireServer, error) { return f.startWeir(ctx) }

func respAddress(s *wireServer) string { return s.address }

// respSubjects are the servers of RESP. The floor has to come after weir, whose reply it gives.
func respSubjects() []wireSubject {
	return []wireSubject{
		{
			By: byWeir, Call: "CL.THROTTLE key 999999 1 1000", kind: redisOurs, address: respAddress,
			open: startWeir,
			flags: func(context.Context, *wireServer) ([]string, error) {
				return []string{"--limit", fmt.Sprintf("%d/1/%d", wireBurst-1, wirePeriod)}, nil
			},
			fill: func(ctx context.Context, s *wireServer, keys int) error {
				return fillRESP(ctx, s.address, keys, "*5\r\n:0\r\n", throttleCommand)
			},
		},
		{
			By: byIncr, Call: "INCR key", kind: redisPeer, open: redisOnServer, address: respAddress,
			flags: func(context.Context, *wireServer) ([]string, error) { return []string{"--command", "INCR {key}"}, nil },
			fill: func(ctx context.Context, s *wireServer, keys int) error {
				return fillRESP(ctx, s.address, keys, ":", func(key string) []string { return []string{"INCR", key} })
			},
		},
		{
			By: byGCRA, Call: "EVALSHA script 1 key interval burst expiry", kind: redisPeer, address: respAddress,
			open: redisOnServer, flags: scriptFlags,
			// What the script would keep is written as it is, which takes a tenth of the time.
			fill: func(ctx context.Context, s *wireServer, keys int) error {
				tat := strconv.FormatInt(time.Now().Add(wirePeriod*time.Second).UnixMicro(), 10)
				return fillRESP(ctx, s.address, keys, "+OK", func(key string) []string {
					return []string{"SET", key, tat, "PX", strconv.Itoa(wireBurst * wirePeriod * 1000)}
				})
			},
		},
		{
			By: byBareRESP, Call: "the same bytes to every command", kind: redisFloor, address: respAddress,
			open: func(ctx context.Context, f *wireFleet) (*wireServer, error) {
				return f.startMember(ctx, wireMember{Kind: wireRESP})
			},
			flags: func(context.Context, *wireServer) ([]string, error) {
				return []string{"--limit", fmt.Sprintf("%d/1/%d", wireBurst-1, wirePeriod)}, nil
			},
		},
	}
}

func redisOnServer(ctx context.Context, f *wireFleet) (*wireServer, error) {
	return f.startRedis(ctx, f.place.onServer)
}

// scriptFlags have the load generator call the script, which the server is given first, and asked once to see that it grants.
func scriptFlags(ctx context.Context, s *wireServer) ([]string, error) {
	reply, err := askRESP(ctx, s.address, "SCRIPT", "LOAD", gcraScript)
	if err != nil {
		return nil, err
	}
	sha := between(string(reply), "\r\n", "\r\n")
	const interval = wirePeriod * 1_000_000 // µs
	arguments := []string{
		strconv.Itoa(interval), strconv.Itoa(interval * wireBurst), strconv.Itoa(wirePeriod * 1000 * wireBurst),
	}
	reply, err = askRESP(ctx, s.address, append([]string{"EVALSHA", sha, "1", wireKey + "0"}, arguments...)...)
	if err != nil {
		return nil, err
	}
	if string(reply) != ":1\r\n" {
		return nil, fmt.Errorf("bench: the script replies %q: it must grant", reply)
	}
	return []string{"--command", fmt.Sprintf("EVALSHA %s 1 {key} %s %s %s", sha, arguments[0], arguments[1], arguments[2])}, nil
}

// noFlags are those of servers that are asked as the load says.
func noFlags(context.Context, *wireServer) ([]string, error) { return nil, nil }

// rlsSubjects are the servers of Envoy's rate limit service.
func rlsSubjects() []wireSubject {
	return []wireSubject{
		{
			By: byWeir, Call: "ShouldRateLimit, one descriptor", kind: redisOurs, open: startWeir,
			address: func(s *wireServer) string { return s.grpc }, flags: noFlags,
		},
		{
			By: byBareGRPC, Call: "the same bytes to every call", kind: redisFloor, address: respAddress, flags: noFlags,
			open: func(ctx context.Context, f *wireFleet) (*wireServer, error) {
				return f.startMember(ctx, wireMember{Kind: wireGRPC})
			},
		},
		{
			By: byBareLoop, Call: "the same frames to every call", kind: redisFloor, address: respAddress, flags: noFlags,
			open: func(ctx context.Context, f *wireFleet) (*wireServer, error) {
				return f.startMember(ctx, wireMember{Kind: wireLoop})
			},
		},
		{
			By: byRateLimit, Call: "INCRBY and EXPIRE, then the same bytes", kind: redisPeer, address: respAddress,
			flags: noFlags, open: openRateLimit,
		},
	}
}

// openSubjects are those that answer as many calls as an open loop has.
func openSubjects() []wireSubject {
	return slices.DeleteFunc(rlsSubjects(), func(s wireSubject) bool { return s.By != byWeir && s.By != byBareLoop })
}

// openRateLimit starts the server and, where the load generator runs, which leaves more of its processor, the Redis that it asks.
func openRateLimit(ctx context.Context, f *wireFleet) (*wireServer, error) {
	redis, err := f.startRedis(ctx, f.place.onClient)
	if err != nil {
		return nil, err
	}
	s, err := f.startMember(ctx, wireMember{Kind: wireRateLimit, Redis: redis.address})
	if err != nil {
		redis.stop()
		return nil, err
	}
	s.redis = redis.redis
	return s, nil
}

// httpSubjects are the servers of checks over HTTP.
func httpSubjects() []wireSubject {
	return []wireSubject{
		{
			By: byWeir, Call: "POST /v1/check", kind: redisOurs, open: startWeir,
			address: func(s *wireServer) string { return s.http }, flags: noFlags,
		},
		{
			By: byBareHTTP, Call: "the same to every request", kind: redisFloor, address: respAddress, flags: noFlags,
			open: func(ctx context.Context, f *wireFleet) (*wireServer, error) {
				return f.startMember(ctx, wireMember{Kind: wireHTTP})
			},
		},
	}
}
