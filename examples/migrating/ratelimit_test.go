package migrating_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	descriptorv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/weirhq/weir/internal/programtest"
)

// services starts the service of envoyproxy/ratelimit and weir with the same directory of configurations, and returns clients
// of both.
func services(t *testing.T) (before, after ratelimitv3.RateLimitServiceClient) {
	t.Helper()
	redis, ratelimit := startRedis(t), programtest.FreeAddress(t)
	_, port, _ := net.SplitHostPort(ratelimit)
	_, httpPort, _ := net.SplitHostPort(programtest.FreeAddress(t))
	_, debugPort, _ := net.SplitHostPort(programtest.FreeAddress(t))
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	programtest.Command{Path: ratelimitProgram.Path(t), Env: []string{
		"GRPC_HOST=127.0.0.1", "GRPC_PORT=" + port, "HOST=127.0.0.1", "PORT=" + httpPort, "DEBUG_HOST=127.0.0.1", "DEBUG_PORT=" + debugPort,
		"RUNTIME_ROOT=" + here, "RUNTIME_SUBDIRECTORY=ratelimit", "RUNTIME_WATCH_ROOT=false", "DISABLE_STATS=true",
		"REDIS_SOCKET_TYPE=tcp", "REDIS_URL=" + redis,
	}}.Start(t).Listens(ratelimit)
	weir := programtest.FreeAddress(t)
	startWeir(t, weir, "--http", programtest.FreeAddress(t), "--grpc", weir, "--ratelimit-config", filepath.Join("ratelimit", "config"))
	return dial(t, ratelimit), dial(t, weir)
}

func dial(t *testing.T, address string) ratelimitv3.RateLimitServiceClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return ratelimitv3.NewRateLimitServiceClient(conn)
}

// descriptor is one of keys and values.
func descriptor(pairs ...string) *descriptorv3.RateLimitDescriptor {
	d := &descriptorv3.RateLimitDescriptor{}
	for i := 0; i < len(pairs); i += 2 {
		d.Entries = append(d.Entries, &descriptorv3.RateLimitDescriptor_Entry{Key: pairs[i], Value: pairs[i+1]})
	}
	return d
}

// ask returns what a service says about a request in short: the code of the whole, and for each descriptor its code and what
// is left.
func ask(t *testing.T, service ratelimitv3.RateLimitServiceClient, descriptors ...*descriptorv3.RateLimitDescriptor) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	got, err := service.ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{Domain: "shop", Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	parts := []string{got.GetOverallCode().String()}
	for _, s := range got.GetStatuses() {
		parts = append(parts, fmt.Sprintf("[%v of %d per %v, %d left]", s.GetCode(), s.GetCurrentLimit().GetRequestsPerUnit(),
			s.GetCurrentLimit().GetUnit(), s.GetLimitRemaining()))
	}
	return strings.Join(parts, " ")
}

// TestEnvoyRatelimit asks both services the same, in random order: requests of one descriptor, which is what most are. Each
// answer is the same, with what is left.
func TestEnvoyRatelimit(t *testing.T) {
	before, after := services(t)
	var codes map[string]int
	differences := withinDay(t, func(salt string) (differences []string) {
		differences, codes = compare(t, before, after, salt)
		return differences
	})
	for _, d := range differences {
		t.Error(d)
	}
	if codes["OK"] < 50 || codes["OVER_LIMIT"] < 50 {
		t.Errorf("too little is compared: %v", codes)
	}
}

// withinDay returns what f has found on one day of UTC: if it runs over midnight it is run again, with other names.
func withinDay(t *testing.T, f func(salt string) []string) []string {
	t.Helper()
	today := func() int { return time.Now().UTC().YearDay() }
	for attempt := range 2 {
		day := today()
		if found := f(fmt.Sprint("attempt", attempt)); day == today() {
			return found
		}
	}
	t.Fatal("two days have ended during this test")
	return nil
}

func compare(t *testing.T, before, after ratelimitv3.RateLimitServiceClient, salt string) (differences []string, codes map[string]int) {
	t.Helper()
	random := rand.New(rand.NewPCG(3, 4))
	codes = make(map[string]int)
	for range 400 {
		who := fmt.Sprint(salt, random.IntN(3))
		var d *descriptorv3.RateLimitDescriptor
		switch random.IntN(6) {
		case 0:
			d = descriptor("remote_address", who)
		case 1:
			d = descriptor("remote_address", "192.0.2.7")
		case 2:
			d = descriptor("tenant", who, "path", "/export")
		case 3:
			d = descriptor("tenant", who, "path", "/page")
		case 4:
			d = descriptor("plan", "trial")
		default:
			d = descriptor("nobody", "knows")
		}
		old, now := ask(t, before, d), ask(t, after, d)
		var code string
		_, _ = fmt.Sscan(old, &code)
		codes[code]++
		if old != now {
			differences = append(differences, fmt.Sprintf("%v:\n  before: %s\n  after:  %s", d, old, now))
		}
	}
	return differences, codes
}

// TestEnvoyRatelimitRefusals is the difference: a refused request of several descriptors charges all of them there, and none
// here. A client that keeps asking for an export that is used up loses its other pages there, and keeps them here.
func TestEnvoyRatelimitRefusals(t *testing.T) {
	before, after := services(t)
	for _, wrong := range withinDay(t, func(salt string) (wrong []string) {
		tenant := "acme " + salt
		export, page := descriptor("tenant", tenant, "path", "/export"), descriptor("tenant", tenant, "path", "/page")
		for service, left := range map[ratelimitv3.RateLimitServiceClient]int{before: 14, after: 24} {
			var last string
			for range 15 { // 5 are granted
				last = ask(t, service, export, page)
			}
			want := fmt.Sprintf("OVER_LIMIT [OVER_LIMIT of 5 per DAY, 0 left] [OK of 30 per DAY, %d left]", left+1)
			if last != want {
				wrong = append(wrong, fmt.Sprintf("%s, want %s", last, want))
			}
			want = fmt.Sprintf("OK [OK of 30 per DAY, %d left]", left)
			if got := ask(t, service, page); got != want {
				wrong = append(wrong, fmt.Sprintf("%s, want %s", got, want))
			}
		}
		return wrong
	}) {
		t.Error(wrong)
	}
}
