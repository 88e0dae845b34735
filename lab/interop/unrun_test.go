package interop_test

import (
	"encoding/json"
	"slices"
	"testing"

	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"       // a filter of the block
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/header_mutation/v3" // another one
	connectionmanagerv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	"go.yaml.in/yaml/v4"
	"google.golang.org/protobuf/encoding/protojson"
)

// dynamic is what the blocks of Traefik say, in the words of its dynamic configuration.
type dynamic struct {
	HTTP struct {
		Middlewares map[string]struct {
			ForwardAuth struct {
				Address             string   `yaml:"address"`
				TrustForwardHeader  *bool    `yaml:"trustForwardHeader"`  //nolint:tagliatelle // as Traefik spells it
				AuthResponseHeaders []string `yaml:"authResponseHeaders"` //nolint:tagliatelle // likewise
			} `yaml:"forwardAuth"` //nolint:tagliatelle // likewise
			Headers struct {
				CustomRequestHeaders map[string]string `yaml:"customRequestHeaders"` //nolint:tagliatelle // likewise
			} `yaml:"headers"`
		} `yaml:"middlewares"`
		Routers map[string]struct {
			Rule        string   `yaml:"rule"`
			Middlewares []string `yaml:"middlewares"`
			Service     string   `yaml:"service"`
		} `yaml:"routers"`
	} `yaml:"http"`
}

// TestTraefikIsToldNothingByClients: no Traefik runs in the tests. Its blocks have what keeps clients from telling weir the host, and the
// service what it is over.
func TestTraefikIsToldNothingByClients(t *testing.T) {
	for name, trusts := range map[string]bool{"dynamic.yaml": false, "dynamic-balancer.yaml": true} {
		var d dynamic
		if err := yaml.Load([]byte(snippet(t, "yaml", name)), &d, yaml.WithKnownFields()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		weir := d.HTTP.Middlewares["weir"].ForwardAuth
		if weir.Address != "http://"+documentWeir+"/v1/auth" || weir.TrustForwardHeader == nil || *weir.TrustForwardHeader != trusts ||
			!slices.Contains(weir.AuthResponseHeaders, "Weir-Over") {
			t.Errorf("%s: %+v", name, weir)
		}
		asked := d.HTTP.Routers["app"].Middlewares
		if len(asked) == 0 || asked[len(asked)-1] != "weir" {
			t.Errorf("%s: the router goes through %q, and weir is not the last", name, asked)
		}
		for _, field := range []string{"X-Forwarded-Method", "X-Forwarded-Uri", "X-Forwarded-Host"} {
			drops := func(middleware string) bool {
				value, ok := d.HTTP.Middlewares[middleware].Headers.CustomRequestHeaders[field]
				return ok && value == ""
			}
			if trusts && !slices.ContainsFunc(asked, drops) {
				t.Errorf("%s: %s of a client reaches weir", name, field)
			}
		}
	}
}

// TestEnvoyReadsItsBlock: no Envoy runs in the tests. Its block is of filters that it knows, and the one that drops what a client says the
// request is over comes first.
func TestEnvoyReadsItsBlock(t *testing.T) {
	var filters []any
	if err := yaml.Load([]byte(snippet(t, "yaml", "envoy.yaml")), &filters); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range filters {
		text, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		var filter connectionmanagerv3.HttpFilter
		if err := protojson.Unmarshal(text, &filter); err != nil {
			t.Error(err)
		}
		names = append(names, filter.GetName())
	}
	if want := []string{"envoy.filters.http.header_mutation", "envoy.filters.http.ext_authz"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}
