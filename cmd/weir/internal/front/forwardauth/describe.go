package forwardauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"

	"github.com/weirhq/weir/clientip"
	"github.com/weirhq/weir/cmd/weir/internal/flags"
	"github.com/weirhq/weir/policy"
)

// kind is how the original request is described.
type kind uint8

const (
	forwarded kind = iota
	nginx
	envoy
)

func kindOf(path string) kind {
	switch {
	case path == nginxPath:
		return nginx
	case path == envoyPath, strings.HasPrefix(path, envoyPath+"/"):
		return envoy
	default:
		return forwarded
	}
}

func (k kind) path() string { return [...]string{Path, nginxPath, envoyPath}[k] }

// describe fills p with the original request, of which r is the description.
func (h *Handler) describe(p *policy.Request, r *http.Request, k kind) error {
	peer, ok := clientip.Parse(r.RemoteAddr)
	if !ok || !h.client.Trusts(peer) {
		return fmt.Errorf("weir: %s may not ask: it is in none of the networks of --trust-proxy", r.RemoteAddr)
	}
	p.Protocol, p.Header = "http", r.Header
	var err error
	switch k {
	case nginx:
		err = describeNginx(p, r)
	case envoy:
		err = h.describeEnvoy(p, r)
	default:
		err = h.describeForwarded(p, r)
	}
	switch {
	case err != nil:
		return err
	case !flags.IsMethod(p.Method):
		return fmt.Errorf("weir: %.80q: must be the method of a request", p.Method)
	case !flags.IsHost(p.Host):
		return fmt.Errorf("weir: %.80q: must be the host of a request", p.Host)
	}
	return nil
}

// describeNginx reads the fields that the documented configuration of nginx sets.
func describeNginx(p *policy.Request, r *http.Request) (err error) {
	if p.Method, err = one(r, "X-Original-Method"); err != nil {
		return err
	}
	p.Host = r.Host
	if p.Client, err = realIP(r); err != nil {
		return err
	}
	return target(p, r, "X-Original-Uri")
}

// describeForwarded reads the fields that Caddy and Traefik set.
func (h *Handler) describeForwarded(p *policy.Request, r *http.Request) (err error) {
	if p.Method, err = one(r, "X-Forwarded-Method"); err != nil {
		return err
	}
	if p.Host, err = one(r, "X-Forwarded-Host"); err != nil {
		return err
	}
	if p.Client, err = h.forwardedFor(r); err != nil {
		return err
	}
	return target(p, r, "X-Forwarded-Uri")
}

// describeEnvoy reads the request that Envoy has made of the original one. Its path is the original one behind the prefix.
func (h *Handler) describeEnvoy(p *policy.Request, r *http.Request) (err error) {
	p.Method, p.Host = r.Method, r.Host
	text, ok := strings.CutPrefix(r.RequestURI, envoyPath)
	if text == "" || text[0] == '?' {
		text = "/" + text
	}
	target, read := flags.ParseTarget(text)
	if !ok || !read {
		return fmt.Errorf("weir: %.80q: must be %s and the target of a request: %s",
			r.RequestURI, envoyPath, flags.TargetForm)
	}
	target.Set(p)
	if len(r.Header["X-Real-Ip"]) > 0 {
		p.Client, err = realIP(r)
	} else {
		p.Client, err = h.forwardedFor(r)
	}
	return err
}

// one is the value of a field that must be there once. With two of them it is not known which one the proxy has set.
func one(r *http.Request, name string) (string, error) {
	values := r.Header[name]
	if len(values) != 1 || values[0] == "" {
		return "", fmt.Errorf("weir: %d fields %s: must be one, set by the proxy", len(values), name)
	}
	return values[0], nil
}

// target reads the target of the original request, such as "/search?q=weir", from a field.
func target(p *policy.Request, r *http.Request, name string) error {
	text, err := one(r, name)
	if err != nil {
		return err
	}
	target, ok := flags.ParseTarget(text)
	if !ok {
		return fmt.Errorf("weir: %s %.80q: must be the target of a request: %s", name, text, flags.TargetForm)
	}
	target.Set(p) // the proxy tells the host apart
	return nil
}

// realIP is the address in X-Real-IP.
func realIP(r *http.Request) (netip.Addr, error) {
	text, err := one(r, "X-Real-Ip")
	if err != nil {
		return netip.Addr{}, err
	}
	if text == "unix:" { // what nginx says of a client that has come by a Unix socket
		return netip.Addr{}, nil
	}
	addr, ok := clientip.Parse(text)
	if !ok {
		return netip.Addr{}, fmt.Errorf("weir: X-Real-IP %.80q: must be the address of the client", text)
	}
	return addr, nil
}

// forwardedFor is the client in X-Forwarded-For: the last address that is not one of a trusted proxy. What the proxy that asks
// has written must be an address: its own would count in place of that of each client of which it tells none.
func (h *Handler) forwardedFor(r *http.Request) (netip.Addr, error) {
	values := r.Header["X-Forwarded-For"]
	if len(values) == 0 {
		return netip.Addr{}, errors.New("weir: no field X-Forwarded-For: must be set by the proxy")
	}
	addr, ok := h.client.Client(r.RemoteAddr, values)
	if !ok || h.client.Trusts(addr) && !endsWithAddress(values[len(values)-1]) {
		return netip.Addr{}, fmt.Errorf("weir: X-Forwarded-For %.80q: must end with the address of the client",
			strings.Join(values, ", "))
	}
	return addr, nil
}

// endsWithAddress reports whether the last entry of a list is an address, without a zone.
func endsWithAddress(list string) bool {
	last := strings.Trim(list[strings.LastIndexByte(list, ',')+1:], " \t")
	_, ok := clientip.Parse(last)
	return ok && !strings.Contains(last, "%")
}
