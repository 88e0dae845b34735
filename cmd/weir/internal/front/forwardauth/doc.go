// Package forwardauth is the front of the server for other servers that ask, before they serve a request, whether it may
// pass: nginx with auth_request, Caddy with forward_auth, Traefik with ForwardAuth and Envoy with ext_authz over HTTP.
//
// There is one address for each way to describe the original request, and at each of them only the fields of that way are
// read, so that a client cannot smuggle in those of another one:
//
//	/v1/auth            X-Forwarded-Method, -Uri, -Host and -For: Caddy, Traefik and whatever does as they do
//	/v1/auth/nginx      X-Original-Method, X-Original-URI, X-Real-IP and Host
//	/v1/auth/envoy/...  its own method, Host and the path behind the prefix, and X-Real-IP or X-Forwarded-For
//
// The server that asks must be in one of the trusted networks: it vouches for what the fields say. All other fields are those of
// the client, and rules can match them.
//
// The answer is 200 if the request may pass, with the fields RateLimit and RateLimit-Policy. If not, it is the status of
// refusals, with Retry-After too and a problem detail as its body. nginx takes nothing but 401 and 403 for a refusal and
// throws the body away, so there the status is one of these, and the body is in the field X-Weir-Problem as well. A request
// that does not describe another one, or comes from a server that is not trusted, is answered with 400: such a setup is
// wrong, and must neither let everything pass nor look like a refusal.
//
// The decision ends with its answer, as the end of the original request is not known here. So a limit of concurrency, whose
// permits are held while a request is served, has no effect.
package forwardauth
