package limitflags

import (
	"github.com/weirhq/weir"
	"github.com/weirhq/weir/policy"
)

// Text is the key as a policy has it: it answers the same as FromRequest.
func (k Key) Text() (policy.Text, error) { //nolint:ireturn // a policy wants the interface
	texts := make([]policy.Text, 0, len(k.parts))
	for _, p := range k.parts {
		text, err := p.text()
		if err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	switch len(texts) {
	case 0:
		return policy.ConstantText(""), nil
	case 1:
		return texts[0], nil
	default:
		return policy.JoinText(texts...), nil
	}
}

func (p part) text() (policy.Text, error) { //nolint:ireturn // as Text
	switch p.attribute {
	case client:
		return policy.Client(), nil
	case clientIP:
		return policy.ClientIP(), nil
	case clientNet:
		return policy.ClientNet(p.v4, p.v6)
	case header:
		return policy.HeaderText(p.header), nil
	case path:
		return policy.PathText(), nil
	case method:
		return policy.MethodText(), nil
	default:
		return policy.HostText(), nil
	}
}

// Set is a configuration of one policy of that name, which holds for all requests.
func (l *Limit) Set(name string) (*policy.Set, error) {
	key, err := l.By.Text()
	if err != nil {
		return nil, err
	}
	return &policy.Set{
		Policies: []policy.Policy{{
			Name: name, Key: key, MaxKeys: l.MaxKeys,
			Limits: []policy.Limit{{Limit: weir.TokenBucket(l.EffectiveRate(), l.EffectiveBurst())}},
		}},
		Rules: []policy.Rule{{Name: name, Limits: []policy.Use{{Policy: name}}}},
	}, nil
}
