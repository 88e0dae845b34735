#!/bin/sh
# The token of the admin API, unless there is one. The service is not started: what it limits is to be configured first.
set -eu

token=/etc/weir/admin-token
if [ ! -e "$token" ]; then
    umask 077
    head -c 32 /dev/urandom | base64 >"$token"
fi

if [ -d /run/systemd/system ]; then
    systemctl daemon-reload
fi
