package limitflags_test

import (
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/accesslog"
)

func TestFromRecordEqualsFromRequest(t *testing.T) {
	rec := accesslog.Record{
		Client: netip.MustParseAddr("192.0.2.7"), Host: []byte("example.com"), Method: []byte("GET"),
		Path: []byte("/a/%62"), Referer: []byte("https://example.org/"), UserAgent: []byte("curl"),
	}
	r, client := request("192.0.2.7", func(r *http.Request) { r.Header.Set("Referer", "https://example.org/") })
	for _, by := range []string{
		"none", "client.ip", "client.net", "path", "method", "host", "header:User-Agent", "header:Referer",
		"client.ip,path", "host,method,path,client.net", "header:Referer,header:User-Agent",
	} {
		k := key(t, by)
		if got, want := k.FromRecord(&rec), k.FromRequest(r, client); got != want {
			t.Errorf("%s: %q of the record, %q of the request", by, got, want)
		}
		if err := k.CheckRecords(); err != nil {
			t.Errorf("%s: %v", by, err)
		}
	}

	rec = accesslog.Record{ClientName: []byte("host.example"), Path: []byte("/100%"), Host: []byte("EXAMPLE.com.:80")}
	for by, want := range map[string]string{
		"client.ip": "host.example", "client.net": "host.example", "path": "/100%", "method": "",
		"client.ip,header:Referer": "host.example,", "host": "example.com",
	} {
		if got := key(t, by).FromRecord(&rec); got != want {
			t.Errorf("%s: %q, want %q", by, got, want)
		}
	}
	if got := key(t, "client.ip").FromRecord(&accesslog.Record{}); got != "-" {
		t.Errorf("a client that is not known is %q, want -", got)
	}
	if err := key(t, "path,header:Cookie").CheckRecords(); err == nil || !strings.Contains(err.Error(), "User-Agent") {
		t.Errorf("header:Cookie of records: %v", err)
	}
}

func TestKeysOfRecordsDoNotAllocate(t *testing.T) {
	rec := accesslog.Record{Client: netip.MustParseAddr("2001:db8::1"), Path: []byte("/a/b"), Method: []byte("GET")}
	b := make([]byte, 0, 256)
	for _, by := range []string{"none", "path", "method", "client.ip", "client.net", "header:User-Agent", "client.ip,path"} {
		k := key(t, by)
		if got := testing.AllocsPerRun(100, func() { k.AppendRecord(b, &rec) }); got > 0 {
			t.Errorf("%s: %v allocations", by, got)
		}
	}
}
