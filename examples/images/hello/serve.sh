#!/bin/busybox sh
# Serves $GREETING at /, the version at /version, and /healthz for health checks.
busybox=/bin/busybox
$busybox mkdir -p /www
printf '%s\n' "$GREETING" > /www/index.html
printf '%s\n' "$VERSION" > /www/version
printf 'ok\n' > /www/healthz

# The first process of a container ignores signals that it does not handle; without this, stopping takes 10 s.
trap '$busybox kill $server; exit 0' TERM INT
$busybox httpd -f -p 8080 -h /www &
server=$!
wait $server
