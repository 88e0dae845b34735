package adminapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir"
	"github.com/weirhq/weir/cmd/weir/internal/front/adminguard"
	"github.com/weirhq/weir/cmd/weir/internal/front/answer"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/remote"
	"github.com/weirhq/weir/durable/etcd"
)

// Members are the nodes of a cluster, as an operator changes them.
type Members interface {
	// Members is [etcd.Server.Members].
	Members(ctx context.Context) ([]etcd.Member, error)
	// RemoveMember is [etcd.Server.RemoveMember].
	RemoveMember(ctx context.Context, name string) error
	// AddMember is [etcd.Server.AddMember].
	AddMember(ctx context.Context, name, url string) error
}

// memberTime is how long the nodes of a cluster may take.
const memberTime = 20 * time.Second

// members handles GET admin.MembersPath.
func (h *Handler) members(q *call) (any, *answer.Problem) {
	if h.o.Members == nil {
		return nil, noMembers()
	}
	ctx, cancel := context.WithTimeout(q.r.Context(), memberTime)
	defer cancel()
	all, err := h.o.Members.Members(ctx)
	if err != nil {
		return nil, h.memberProblem(err)
	}
	told := make([]operator.Member, 0, len(all))
	for _, m := range all {
		told = append(told, operator.Member{
			ID: strconv.FormatUint(m.ID, 16), Name: m.Name, URL: m.URL, Started: m.Started, Votes: !m.Learner, Leads: m.Leader,
		})
	}
	return told, nil
}

// memberRemove handles POST admin.MemberRemovePath.
func (h *Handler) memberRemove(q *call) (any, *answer.Problem) {
	return h.memberChange(q, "memberremove", func(ctx context.Context, c *operator.MemberChange) error {
		return h.o.Members.RemoveMember(ctx, c.Name)
	})
}

// memberAdd handles POST admin.MemberAddPath.
func (h *Handler) memberAdd(q *call) (any, *answer.Problem) {
	return h.memberChange(q, "memberadd", func(ctx context.Context, c *operator.MemberChange) error {
		return h.o.Members.AddMember(ctx, c.Name, c.URL)
	})
}

func (h *Handler) memberChange(
	q *call, action string, change func(ctx context.Context, c *operator.MemberChange) error,
) (any, *answer.Problem) {
	var c operator.MemberChange
	if _, p := body(q.r, &c); p != nil {
		return nil, p
	}
	if p := checkReason(c.Reason); p != nil {
		return nil, p
	}
	if h.o.Members == nil {
		return nil, noMembers()
	}
	p := h.o.Audit.Change(adminguard.CallerOf(q.r), operator.AuditEntry{
		Action: action, Detail: strings.TrimSpace(c.Name + " " + c.URL), Reason: c.Reason,
	}, func(*operator.AuditEntry) *answer.Problem {
		ctx, cancel := context.WithTimeout(q.r.Context(), memberTime)
		defer cancel()
		if err := change(ctx, &c); err != nil {
			return h.memberProblem(err)
		}
		return nil
	})
	return operator.Changed{Changed: true, Replicas: operator.AllReplicas}, p
}

func noMembers() *answer.Problem {
	return answer.PlainProblem(http.StatusUnprocessableEntity,
		"this server is in no cluster: its configuration has no section cluster")
}

// memberProblem is why the nodes cannot be listed or changed.
func (h *Handler) memberProblem(err error) *answer.Problem {
	text := strings.TrimPrefix(h.o.Limits.Clean(err.Error()), "weir: ")
	_, option := errors.AsType[*weir.OptionError](err)
	switch {
	case errors.Is(err, etcd.ErrNoMember):
		return answer.PlainProblem(http.StatusNotFound, "%s", text)
	case option, errors.Is(err, remote.ErrNoServer):
		return answer.PlainProblem(http.StatusUnprocessableEntity, "%s", text)
	}
	return answer.Later("%s", text)
}
