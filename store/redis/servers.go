package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/internal/respclient"
	"github.com/weirhq/weir/store/redis/internal/resp"
)

var (
	errNoSlots   = errors.New("no node of the cluster names the masters of its slots")
	errNoMaster  = errors.New("no sentinel names a master")
	errNotMaster = errors.New("it is not the master any more")
)

// servers finds out where requests go: to one server, to the master that sentinels name, or to the masters of a cluster.
type servers struct {
	login     resp.Login
	dialer    *dialer
	addresses []string // as configured
	cluster   bool
	sentinels *sentinels // nil without
}

// sentinels watch a master.
type sentinels struct {
	set   string
	login resp.Login

	lock  sync.Mutex
	known []string // the one that was right last comes first
}

// maxSentinels is how many sentinels are remembered.
const maxSentinels = 64

// ranges are slots of a cluster from one to another, and their master.
type ranges struct {
	from, to int
	address  string
}

// open connects to one of the servers, and finds out whether they are a cluster.
func (s *servers) open(ctx context.Context) (conn *resp.Conn, address string, all []ranges, err error) {
	if s.sentinels != nil {
		conn, address, err = s.master(ctx)
		return conn, address, nil, err
	}
	var errs []error
	for _, address := range s.addresses {
		conn, err := s.dialer.dial(ctx, &s.login, address)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", address, err))
			continue
		}
		if s.login.Unix {
			return conn, address, nil, nil
		}
		all, err := s.slots(conn, address)
		var e respclient.Error
		switch {
		case err == nil:
			s.cluster = true
			return conn, address, all, nil
		case len(s.addresses) == 1 && errors.As(err, &e) && strings.Contains(strings.ToLower(string(e)), "cluster"):
			return conn, address, nil, nil // it is none, or this user may not ask
		}
		conn.Close()
		errs = append(errs, fmt.Errorf("%s: %w", address, err))
	}
	return nil, "", nil, errors.Join(errs...)
}

// ask asks one of the nodes of a cluster which node has which slots.
func (s *servers) ask(ctx context.Context, nodes []string) ([]ranges, error) {
	failed := errNoSlots
	for _, address := range nodes {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		conn, err := s.dialer.dial(ctx, &s.login, address)
		if err != nil {
			failed = err
			continue
		}
		all, err := s.slots(conn, address)
		conn.Close()
		if err == nil {
			return all, nil
		}
		failed = err
	}
	return nil, failed
}

// slots asks a node of a cluster which node has which slots.
func (s *servers) slots(conn *resp.Conn, address string) ([]ranges, error) {
	reply, err := conn.Ask(time.Now().Add(s.dialer.timeout), "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	list, err := reply.List()
	if err != nil {
		return nil, err
	}
	all := make([]ranges, 0, len(list))
	for i := range list {
		r, err := rangeOf(list[i], address)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, errNoSlots
	}
	return all, nil
}

// rangeOf reads what a node replied about some slots.
func rangeOf(reply respclient.Reply, asked string) (r ranges, err error) {
	fields, err := reply.List()
	if err != nil || len(fields) < 3 {
		return r, respclient.ErrProtocol
	}
	from, fromErr := fields[0].Int()
	to, toErr := fields[1].Int()
	node, nodeErr := fields[2].List()
	if errors.Join(fromErr, toErr, nodeErr) != nil || len(node) < 2 || from < 0 || to < from || to >= slots {
		return r, respclient.ErrProtocol
	}
	host, _ := node[0].Text() // null if it is not known
	port, err := node[1].Int()
	if err != nil {
		return r, err
	}
	return ranges{int(from), int(to), place(host+":"+strconv.FormatInt(port, 10), asked)}, nil
}

// place is an address that a node gave, of which the host may be missing: then it is that of the node which was asked.
func place(address, asked string) string {
	at := strings.LastIndexByte(address, ':')
	if at < 0 {
		return address
	}
	host, port := address[:at], address[at+1:]
	if host == "" || host == "?" {
		host, _, _ = net.SplitHostPort(asked)
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// master connects to the master that the sentinels name. What a sentinel says that has not heard of a failover is not taken: the
// server must say itself that it is a master.
func (s *servers) master(ctx context.Context) (conn *resp.Conn, address string, err error) {
	failed := errNoMaster
	for _, sentinel := range s.sentinels.list() {
		if ctx.Err() != nil {
			return nil, "", ctx.Err()
		}
		address, err := s.named(ctx, sentinel)
		if err != nil {
			failed = fmt.Errorf("sentinel %s: %w", sentinel, err)
			continue
		}
		conn, err := s.dialer.dial(ctx, &s.login, address)
		if err == nil {
			if err = s.isMaster(conn); err == nil {
				return conn, address, nil
			}
			conn.Close()
		}
		failed = fmt.Errorf("%s: %w", address, err)
		s.sentinels.last(sentinel)
	}
	return nil, "", failed
}

// isMaster returns an error unless a server is a master, or does not let this user ask.
func (s *servers) isMaster(conn *resp.Conn) error {
	reply, err := conn.Ask(time.Now().Add(s.dialer.timeout), "ROLE")
	var e respclient.Error
	if errors.As(err, &e) && strings.HasPrefix(string(e), "NOPERM") {
		return nil
	}
	if err != nil {
		return err
	}
	fields, err := reply.List()
	if err != nil || len(fields) == 0 {
		return respclient.ErrProtocol
	}
	if role, _ := fields[0].Text(); role != "master" {
		return errNotMaster
	}
	return nil
}

// named asks a sentinel for the address of the master, and for the other sentinels.
func (s *servers) named(ctx context.Context, sentinel string) (address string, err error) {
	conn, err := s.dialer.dial(ctx, &s.sentinels.login, sentinel)
	if err != nil {
		s.sentinels.last(sentinel)
		return "", err
	}
	defer conn.Close()
	until := time.Now().Add(s.dialer.timeout)
	reply, err := conn.Ask(until, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.sentinels.set)
	if err != nil {
		s.sentinels.last(sentinel)
		return "", err
	}
	fields, err := reply.List()
	if err != nil || len(fields) != 2 {
		return "", errNoMaster
	}
	host, hostErr := fields[0].Text()
	port, portErr := fields[1].Text()
	if err := errors.Join(hostErr, portErr); err != nil {
		return "", err
	}
	if reply, err := conn.Ask(until, "SENTINEL", "SENTINELS", s.sentinels.set); err == nil {
		s.sentinels.learn(reply)
	}
	return place(host+":"+port, sentinel), nil
}

func (s *sentinels) list() []string {
	s.lock.Lock()
	defer s.lock.Unlock()
	return slices.Clone(s.known)
}

// last has a sentinel asked after the others.
func (s *sentinels) last(address string) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if at := slices.Index(s.known, address); at >= 0 {
		s.known = append(slices.Delete(s.known, at, at+1), address)
	}
}

// learn remembers the sentinels that one of them names.
func (s *sentinels) learn(reply respclient.Reply) {
	others, _ := reply.List()
	for i := range others {
		fields, _ := others[i].List()
		var host, port string
		for k := 0; k+1 < len(fields); k += 2 {
			name, _ := fields[k].Text()
			value, _ := fields[k+1].Text()
			switch name {
			case "ip":
				host = value
			case "port":
				port = value
			}
		}
		if host == "" || port == "" {
			continue
		}
		address := net.JoinHostPort(host, port)
		s.lock.Lock()
		if len(s.known) < maxSentinels && !slices.Contains(s.known, address) {
			s.known = append(s.known, address)
		}
		s.lock.Unlock()
	}
}
