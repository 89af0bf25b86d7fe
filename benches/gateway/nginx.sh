#!/bin/bash
# `nginx.sh FOLDER PORT UPSTREAM`: nginx as a proxy on PORT in front of the server on the port UPSTREAM, with connections
# that stay open. It reads neither bodies nor JSON: the floor of a gateway. Prints `listening PORT` when it listens.
set -eu
cat > "$1/nginx.conf" <<CONF
daemon off;
master_process off;
pid $1/pid;
error_log $1/error.log;
events {}
http {
    access_log off;
    keepalive_requests 100000000;
    client_body_temp_path $1/body;
    proxy_temp_path $1/proxy;
    fastcgi_temp_path $1/fastcgi;
    uwsgi_temp_path $1/uwsgi;
    scgi_temp_path $1/scgi;
    upstream server { server 127.0.0.1:$3; keepalive 64; keepalive_requests 100000000; }
    server {
        listen 127.0.0.1:$2;
        location / {
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_set_header Host localhost;
        }
    }
}
CONF
# It ends when nginx, which has the process id of this script, ends before it listens.
(until (exec 3<> "/dev/tcp/127.0.0.1/$2"); do kill -0 $$ || exit; sleep 0.01; done 2> /dev/null; echo "listening $2") &
exec nginx -p "$1" -c "$1/nginx.conf" 2> "$1/stderr.log"
