package top

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"charm.land/bubbles/v2/textinput"
	tea "charm.land/bubbletea/v2"

	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/cmd/weir/internal/operator"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/inwords"
)

// form is a change that is written.
type form struct {
	title  string
	fields []field
	at     int
	// question says what would be done with the fields as they are, or what is wrong with them.
	question func(values []string) (string, error)
	asked    string
	send     func(ctx context.Context, values []string) (string, error)
}

type field struct {
	label, hint string
	input       textinput.Model
}

func (f *form) add(label, hint, value string) {
	input := newInput()
	input.SetValue(value)
	input.CursorEnd()
	f.fields = append(f.fields, field{label, hint, input})
}

func (f *form) values() []string {
	values := make([]string, len(f.fields))
	for i := range f.fields {
		values[i] = strings.TrimSpace(f.fields[i].input.Value())
	}
	return values
}

// move goes to another field.
func (f *form) move(by int) tea.Cmd {
	f.fields[f.at].input.Blur()
	f.at = (f.at + by + len(f.fields)) % len(f.fields)
	return f.fields[f.at].input.Focus()
}

// begin shows a form.
func (m *model) beginForm(f form, at int) tea.Cmd {
	m.form = f
	m.form.at = at
	m.mode = formMode
	m.notice = ""
	return m.form.fields[at].input.Focus()
}

func (m *model) cancelForm() tea.Cmd {
	m.mode = listMode
	return m.say(false, "nothing was changed")
}

// nextField goes to the next field, and behind the last one asks whether it is to be done.
func (m *model) nextField() tea.Cmd {
	if m.form.at < len(m.form.fields)-1 {
		return m.form.move(1)
	}
	question, err := m.form.question(m.form.values())
	if err != nil {
		return m.say(true, "%s", err)
	}
	m.notice = ""
	m.form.asked = question
	m.mode = confirmMode
	return nil
}

// confirm does it.
func (m *model) confirm() tea.Cmd {
	m.mode = listMode
	m.say(false, "asking the server ...")
	ctx, send, values := m.ctx, m.form.send, m.form.values()
	return func() tea.Msg {
		text, err := send(ctx, values)
		return doneMsg{terminal.Printable(text), err}
	}
}

// subject is the key that a change is about: that whose details are shown, or the one that is selected. It is nil if there is
// none; then it says so.
func (m *model) subject() *row {
	r, pane := m.selected(), m.pane
	if m.mode == textMode {
		r, pane = m.page.about, m.page.pane
	}
	switch {
	case r == nil:
		m.say(true, "there is no key to change")
		return nil
	case pane == policiesPane:
		m.say(true, "a change is of a key: Enter lists those of the policy")
		return nil
	case !r.known:
		m.say(true, unknownKey)
		return nil
	}
	return r
}

// reason checks why something is done.
func reason(text string) error {
	if text == "" || len(text) > operator.MostReason {
		return fmt.Errorf("reason: has %d bytes: must have from 1 to %d", len(text), operator.MostReason)
	}
	return nil
}

// change begins a change that needs a reason alone.
func (m *model) change(path, title, done, nothing string) tea.Cmd {
	r := m.subject()
	if r == nil {
		return nil
	}
	policy, key, client := r.policy, r.key, m.client
	of := fmt.Sprintf("%s of %s", operator.ShownKey(key), terminal.Printable(policy))
	f := form{
		title: title + " " + of,
		question: func(values []string) (string, error) {
			return title + " " + of + ": " + values[0], reason(values[0])
		},
		send: func(ctx context.Context, values []string) (string, error) {
			var c operator.Changed
			if err := client.Post(ctx, path, operator.Change{Policy: policy, Key: key, Reason: values[0]}, &c); err != nil {
				return "", err
			}
			text := of + " " + nothing
			if c.Changed {
				text = of + " " + done
			}
			if path == operator.RestorePath {
				return text, nil
			}
			return text + still(ctx, client, policy, key), nil
		},
	}
	f.add("reason", "why, for the audit log", "")
	return m.beginForm(f, 0)
}

func (m *model) unlock() tea.Cmd {
	return m.change(operator.UnlockPath, "unlock", "is let in again", "was not locked out")
}

func (m *model) restore() tea.Cmd {
	return m.change(operator.RestorePath, "restore", "has the limits of the policy again", "was not overridden")
}

// still is what is in the way of a key after a change that was to let it in, "" if nothing is.
func still(ctx context.Context, c *operator.Client, policy, key string) string {
	k, err := c.Key(ctx, policy, key)
	if err != nil {
		return "" // the change is made
	}
	if shut := operator.StillShut(&k.Value); shut != "" {
		return "; " + shut + ": u ends that"
	}
	if refused := operator.StillRefused(&k.Value); refused != "" {
		return "; " + refused
	}
	return ""
}

// override begins a change of the limits of a key, by asking how it is.
func (m *model) override() tea.Cmd {
	r := m.subject()
	if r == nil {
		return nil
	}
	m.say(false, "asking the server ...")
	ctx, client, policy, key, from, about := m.ctx, m.client, r.policy, r.key, m.mode, m.page.about
	return func() tea.Msg {
		k, err := client.Key(ctx, policy, key)
		return overrideMsg{&k.Value, err, from, about}
	}
}

// overriding shows the form of an override: the limits that apply to the key now, and its lockout if there is one, which goes on
// unless it is ended too.
func (m *model) overriding(msg *overrideMsg) tea.Cmd {
	if m.mode != msg.from || m.mode == textMode && m.page.about != msg.about {
		return nil // the operator has gone on meanwhile
	}
	if msg.err != nil {
		return m.say(true, "%s", strings.TrimPrefix(msg.err.Error(), "weir: "))
	}
	k, client := msg.key, m.client
	of := fmt.Sprintf("%s of %s", operator.ShownKey(k.Key), terminal.Printable(k.Policy))
	locked := k.LockedFor != 0
	f := form{title: "override " + of}
	if locked {
		f.title += ", which is locked out for another " + inwords.Duration(operator.Duration(k.LockedFor))
	}
	for i := range k.Limits {
		l := &k.Limits[i]
		label := strings.TrimSpace("limit " + terminal.Printable(l.Name))
		f.add(label, `such as "100/s, burst 200", or "unlimited"`, terminal.Printable(l.Holds))
	}
	f.add("for", "such as 30s, 10m or 2h", "10m")
	if locked {
		f.add("unlock", "yes ends the lockout too; no leaves the key locked out, whatever its limits are", "no")
	}
	f.add("reason", "why, for the audit log", "")
	f.question = func(values []string) (string, error) {
		o, unlock, err := overrideOf(k.Limits, locked, values)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("override %s: %s for %s: %s", of, operator.OverrideText(o), operator.Seconds(o.For), o.Reason)
		switch {
		case unlock:
			text += "; and unlock it"
		case locked:
			text += "; it stays locked out"
		}
		return text, nil
	}
	f.send = func(ctx context.Context, values []string) (string, error) {
		o, unlock, err := overrideOf(k.Limits, locked, values)
		if err != nil {
			return "", err
		}
		o.Policy, o.Key = k.Policy, k.Key
		var c operator.Changed
		if err := client.Post(ctx, operator.OverridePath, o, &c); err != nil {
			return "", err
		}
		text := fmt.Sprintf("%s: %s for %s", of, operator.OverrideText(o), operator.Seconds(o.For))
		if unlock {
			change := operator.Change{Policy: k.Policy, Key: k.Key, Reason: o.Reason}
			if err := client.Post(ctx, operator.UnlockPath, change, &c); err != nil {
				return "", fmt.Errorf("%s, but it is not unlocked: %w", text, err)
			}
			text += ", and unlocked"
		}
		return text + still(ctx, client, k.Policy, k.Key), nil
	}
	return m.beginForm(f, 0)
}

// overrideOf is the override that the fields of a form are, and whether a lockout is to end with it.
func overrideOf(limits []operator.KeyLimit, locked bool, values []string) (o *operator.Override, unlock bool, err error) {
	o = &operator.Override{Limits: map[string]string{}, Reason: values[len(values)-1]}
	for i := range limits {
		switch values[i] {
		case "":
			return nil, false, fmt.Errorf(`limit %s: is empty: must be a limit such as "100/s, burst 200", or "unlimited"`,
				terminal.Printable(limits[i].Name))
		case operator.Unlimited:
			o.Unlimited = true
		default:
			o.Limits[limits[i].Name] = values[i]
		}
	}
	if o.Unlimited {
		if len(o.Limits) > 0 && values[0] != operator.Unlimited {
			return nil, false, errors.New("limit: all of them are unlimited, or none: write it in the first field")
		}
		o.Limits = nil
	}
	var during time.Duration
	text := values[len(limits)]
	if err := flags.Duration(&during, operator.ShortestOverride, operator.LongestOverride).Set(text); err != nil {
		return nil, false, fmt.Errorf("for %q: %w", text, err)
	}
	o.For = during.Seconds()
	if locked {
		switch text := values[len(limits)+1]; strings.ToLower(text) {
		case "yes", "y":
			unlock = true
		case "no", "n":
		default:
			return nil, false, fmt.Errorf("unlock %q: must be yes or no", text)
		}
	}
	return o, unlock, reason(o.Reason)
}
