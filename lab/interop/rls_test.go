package interop_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3" // its messages are compared
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/weirhq/weir/internal/programtest"
)

// rls starts weir with arguments, and answers a connection to its gRPC server.
func rls(t *testing.T, args ...string) *grpc.ClientConn {
	t.Helper()
	address := programtest.FreeAddress(t)
	serve(t, address, append([]string{"--http", programtest.FreeAddress(t), "--grpc", address}, args...)...)
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// descriptor is one of keys and values.
func descriptor(pairs ...string) *ratelimitcommonv3.RateLimitDescriptor {
	d := &ratelimitcommonv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

func shouldRateLimit(
	t *testing.T, conn *grpc.ClientConn, descriptors ...*ratelimitcommonv3.RateLimitDescriptor,
) *ratelimitv3.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	got, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "edge", Descriptors: descriptors,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := got.ValidateAll(); err != nil {
		t.Errorf("the answer is not one that Envoy takes: %v", err)
	}
	return got
}

// TestEnvoyRules asks weir, with the configuration of docs/envoy.md, by Envoy's own messages.
func TestEnvoyRules(t *testing.T) {
	text, err := os.ReadFile("../../docs/envoy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, found := strings.Cut(string(text), "```yaml\n# weir.yaml\n")
	if !found {
		t.Fatal("docs/envoy.md has no weir.yaml")
	}
	block, _, _ = strings.Cut(block, "```")
	conn := rls(t, "--config", programtest.Write(t, t.TempDir(), "weir.yaml", block))
	user, search := descriptor("user", "u"), descriptor("route", "search", "remote_address", "192.0.2.7")
	for i, want := range []ratelimitv3.RateLimitResponse_Code{
		ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT,
	} {
		got := shouldRateLimit(t, conn, user, search, descriptor("route", "other", "remote_address", "192.0.2.7"))
		if got.GetOverallCode() != want || len(got.GetStatuses()) != 3 {
			t.Fatalf("call %d: %v, want %v", i, got, want)
		}
		limit := got.GetStatuses()[1].GetCurrentLimit()
		if limit.GetName() != "search" || limit.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_HOUR {
			t.Errorf("call %d: the limit is told as %v", i, limit)
		}
	}
	// The user was not charged for the call that the other limit refused.
	got := shouldRateLimit(t, conn, user)
	if got.GetOverallCode() != ratelimitv3.RateLimitResponse_OK || got.GetStatuses()[0].GetLimitRemaining() != 0 {
		t.Errorf("the user: %v", got)
	}
	health, err := healthv1.NewHealthClient(conn).Check(t.Context(), &healthv1.HealthCheckRequest{})
	if err != nil || health.GetStatus() != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("%v, %v", health, err)
	}
}

// TestEnvoyTree asks weir with a configuration of envoyproxy/ratelimit.
func TestEnvoyTree(t *testing.T) {
	conn := rls(t, "--ratelimit-config", programtest.Write(t, t.TempDir(), "edge.yaml", `
domain: edge
descriptors:
  - key: user
    value: bob
    rate_limit: {unit: year, requests_per_unit: 1, name: bob}
  - key: user
    rate_limit: {unit: year, requests_per_unit: 2}
`))
	const ok, over = ratelimitv3.RateLimitResponse_OK, ratelimitv3.RateLimitResponse_OVER_LIMIT
	for i, step := range []struct {
		user string
		want ratelimitv3.RateLimitResponse_Code
	}{{"bob", ok}, {"bob", over}, {"eve", ok}, {"eve", ok}, {"eve", over}, {"ann", ok}} {
		got := shouldRateLimit(t, conn, descriptor("user", step.user))
		if limit := got.GetStatuses()[0].GetCurrentLimit(); got.GetOverallCode() != step.want ||
			limit.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_YEAR || (limit.GetName() == "bob") != (step.user == "bob") {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}

// TestEnvoyMessages compares every message, field and number that weir tells by reflection with Envoy's own.
func TestEnvoyMessages(t *testing.T) {
	conn := rls(t)
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	messages := 0
	for _, service := range []string{
		"envoy.service.ratelimit.v3.RateLimitService", "envoy.service.rate_limit_quota.v3.RateLimitQuotaService",
	} {
		err := stream.Send(&reflectionv1.ServerReflectionRequest{
			MessageRequest: &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: service},
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		for _, wire := range got.GetFileDescriptorResponse().GetFileDescriptorProto() {
			var file descriptorpb.FileDescriptorProto
			if err := proto.Unmarshal(wire, &file); err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(file.GetPackage(), "envoy.") {
				messages += compareFile(t, &file)
			}
		}
	}
	if messages < 15 {
		t.Errorf("only %d messages were compared", messages)
	}
}

// compareFile returns how many messages it has compared.
func compareFile(t *testing.T, file *descriptorpb.FileDescriptorProto) int {
	t.Helper()
	official, err := protoregistry.GlobalFiles.FindFileByPath(file.GetName())
	if err != nil {
		t.Errorf("%s: %v", file.GetName(), err)
		return 0
	}
	theirs := protodesc.ToFileDescriptorProto(official)
	if theirs.GetPackage() != file.GetPackage() {
		t.Errorf("%s is of package %s, not %s", file.GetName(), file.GetPackage(), theirs.GetPackage())
	}
	for _, own := range file.GetService() {
		d := official.Services().ByName(protoreflect.Name(own.GetName()))
		if d == nil {
			t.Errorf("there is no service %s", own.GetName())
			continue
		}
		service := protodesc.ToServiceDescriptorProto(d)
		for i, m := range own.GetMethod() {
			if o := service.GetMethod()[i]; o.GetName() != m.GetName() || o.GetInputType() != m.GetInputType() ||
				o.GetOutputType() != m.GetOutputType() || o.GetClientStreaming() != m.GetClientStreaming() ||
				o.GetServerStreaming() != m.GetServerStreaming() {
				t.Errorf("%v is not %v", m, o)
			}
		}
	}
	compareEnums(t, file.GetEnumType(), theirs.GetEnumType())
	return compareMessages(t, file.GetMessageType(), theirs.GetMessageType())
}

func compareMessages(t *testing.T, own, theirs []*descriptorpb.DescriptorProto) int {
	t.Helper()
	compared := 0
	for _, m := range own {
		i := slices.IndexFunc(theirs, func(o *descriptorpb.DescriptorProto) bool { return o.GetName() == m.GetName() })
		if i < 0 {
			t.Errorf("there is no message %s", m.GetName())
			continue
		}
		compared += 1 + compareMessages(t, m.GetNestedType(), theirs[i].GetNestedType())
		compareEnums(t, m.GetEnumType(), theirs[i].GetEnumType())
		for _, f := range m.GetField() {
			j := slices.IndexFunc(theirs[i].GetField(), func(o *descriptorpb.FieldDescriptorProto) bool {
				return o.GetNumber() == f.GetNumber()
			})
			if j < 0 {
				t.Errorf("%s has no field %d", m.GetName(), f.GetNumber())
				continue
			}
			o := theirs[i].GetField()[j]
			if o.GetName() != f.GetName() || o.GetType() != f.GetType() || o.GetLabel() != f.GetLabel() ||
				o.GetTypeName() != f.GetTypeName() || (o.OneofIndex == nil) != (f.OneofIndex == nil) {
				t.Errorf("%s: %v is not %v", m.GetName(), f, o)
			}
		}
	}
	return compared
}

func compareEnums(t *testing.T, own, theirs []*descriptorpb.EnumDescriptorProto) {
	t.Helper()
	for _, e := range own {
		i := slices.IndexFunc(theirs, func(o *descriptorpb.EnumDescriptorProto) bool { return o.GetName() == e.GetName() })
		if i < 0 {
			t.Errorf("there is no enum %s", e.GetName())
			continue
		}
		if len(e.GetValue()) != len(theirs[i].GetValue()) {
			t.Errorf("%s has %d values, not %d", e.GetName(), len(e.GetValue()), len(theirs[i].GetValue()))
			continue
		}
		for j, v := range e.GetValue() {
			if o := theirs[i].GetValue()[j]; o.GetName() != v.GetName() || o.GetNumber() != v.GetNumber() {
				t.Errorf("%s: %v is not %v", e.GetName(), v, o)
			}
		}
	}
}
