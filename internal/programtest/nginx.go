package programtest

import "testing"

// Nginx starts nginx with these lines in its http block, and waits until it listens on address.
func Nginx(tb testing.TB, address, lines string) {
	tb.Helper()
	dir := tb.TempDir()
	Write(tb, dir, "lines.conf", lines)
	file := Write(tb, dir, "nginx.conf", `
daemon off;
master_process off;
pid `+dir+`/nginx.pid;
error_log stderr warn;
events {}
http {
    access_log off;
    keepalive_requests 1000000;
    client_body_temp_path `+dir+`/body;
    proxy_temp_path `+dir+`/proxy;
    fastcgi_temp_path `+dir+`/fastcgi;
    uwsgi_temp_path `+dir+`/uwsgi;
    scgi_temp_path `+dir+`/scgi;
    include `+dir+`/lines.conf;
}
`)
	Command{Path: Installed(tb, "nginx"), Args: []string{"-p", dir, "-e", "stderr", "-c", file}}.Start(tb).Listens(address)
}
