#!/bin/bash
# The way of somebody who never saw Glovebox, from nothing and back: install.sh
# from a release server, doctor, install into an MCP client, a conversation as
# that client would have it, update to the next version, uninstall. Afterwards
# nothing may be left but what uninstall says it keeps.
#
# Two releases are built for it, signed with a key that is thrown away, and
# served on the loopback interface. The stranger has an empty home and the
# system's PATH, and nothing else of whoever calls this.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "stranger: FAILED: $*" >&2
	exit 1
}
step() { echo "stranger: $* (after $SECONDS s)"; }

if ! test/tools.sh python3 curl minisign; then
	case ",${GLOVEBOX_REQUIRE:-}," in
	*,stranger,*) fail "something is not installed" ;;
	esac
	echo "stranger: skipped"
	exit 0
fi

work=$(mktemp -d /tmp/gbx-stranger.XXXXXX)
server=
cleanup() {
	status=$?
	trap - EXIT
	[ -z "$server" ] || kill "$server" 2>/dev/null || true
	rm -rf "$work"
	exit $status
}
trap cleanup EXIT
trap 'exit 130' INT TERM

step "building two releases"
export PLATFORMS
PLATFORMS=linux_$(go env GOARCH)
GLOVEBOX_RELEASE_KEY=$(CGO_ENABLED=0 GOFLAGS=-buildvcs=false go run ./cmd/glovebox-release new-key)
export GLOVEBOX_RELEASE_KEY SKIP_PACKAGES=1
mkdir "$work/www"
SOURCE_DATE_EPOCH=1700000000 release/build.sh v0.1.0 "$work/www/v0.1.0"
SOURCE_DATE_EPOCH=1700000060 release/build.sh v0.2.0 "$work/www/v0.2.0"
archive=glovebox_$PLATFORMS.tar.gz
ln -s v0.1.0 "$work/www/latest"
cp -r "$work/www/v0.1.0" "$work/www/tampered"
printf 'x' >>"$work/www/tampered/$archive"
cp -r "$work/www/v0.1.0" "$work/www/forged" # consistent, but not signed by us
printf 'x' >>"$work/www/forged/$archive"
(cd "$work/www/forged" && sed -i "s/^[0-9a-f]*  $archive\$/$(sha256sum "$archive" | cut -d ' ' -f 1)  $archive/" checksums.txt)

python3 -u -c '
import functools, http.server, sys
class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=sys.argv[1]))
print(s.server_address[1])
s.serve_forever()' "$work/www" >"$work/port" &
server=$!
for _ in $(seq 100); do
	[ ! -s "$work/port" ] || break
	sleep 0.1
done
url=http://127.0.0.1:$(cat "$work/port")

# The stranger: a home with one MCP client in it, which has a server already.
home=$work/home
mkdir -p "$home/.cursor" "$work/tmp"
cat >"$home/.cursor/mcp.json" <<'JSON'
{
  // what was here before
  "mcpServers": {
    "other": { "command": "other-server", "args": [] },
  }
}
JSON
cp "$home/.cursor/mcp.json" "$work/mcp.before"
stranger() {
	(cd "$home" && env -i HOME="$home" TMPDIR="$work/tmp" LANG=C.UTF-8 \
		PATH="$home/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
		GLOVEBOX_UPDATE_URL="$url/latest/" "$@")
}

step "install.sh refuses what is not whole"
curl -fsS -o "$work/install.sh" "$url/latest/install.sh"
if stranger sh "$work/install.sh" --url "$url/tampered" --dir "$home/.local/bin" --no-configure 2>"$work/log"; then
	fail "an archive with another checksum was installed"
fi
grep -q 'the checksum of .* nothing was installed' "$work/log" || fail "it did not say why: $(cat "$work/log")"
if command -v minisign >/dev/null; then
	if stranger sh "$work/install.sh" --url "$url/forged" --dir "$home/.local/bin" --no-configure 2>"$work/log"; then
		fail "checksums that are not signed were believed"
	fi
	grep -q 'the signature .* is not ours' "$work/log" || fail "it did not say why: $(cat "$work/log")"
fi
[ ! -e "$home/.local" ] || fail "something was installed"

step "install.sh"
# As people do it: the script comes through a pipe.
stranger sh -c "curl -fsSL $url/latest/install.sh | sh -s -- --url $url/latest --dir \"\$HOME/.local/bin\" --no-configure" >"$work/log" 2>&1 ||
	fail "install.sh: $(cat "$work/log")"
grep -q 'installed: .*v0.1.0' "$work/log" || fail "install.sh said: $(cat "$work/log")"

step "doctor"
stranger glovebox doctor >"$work/log" || fail "doctor: $(cat "$work/log")"
grep -q 'Sandboxes work here' "$work/log" || fail "doctor said: $(cat "$work/log")"

step "into a client"
stranger glovebox install cursor 2>"$work/log" || fail "install: $(cat "$work/log")"
grep -q 'what was here before' "$home/.cursor/mcp.json" || fail "a comment is gone from the client's configuration"

step "a conversation, as the client has it"
stranger python3 - "$home/.cursor/mcp.json" <<'PYTHON' || fail "the conversation"
import json, re, subprocess, sys

text = open(sys.argv[1]).read()
text = re.sub(r'(?m)^\s*//.*$', '', text)
text = re.sub(r',(\s*[}\]])', r'\1', text)
server = json.loads(text)["mcpServers"]["glovebox"]
p = subprocess.Popen([server["command"], *server.get("args", [])],
                     stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)

def call(id, method, params):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}), file=p.stdin, flush=True)
    for line in p.stdout:
        message = json.loads(line)
        if message.get("id") == id:
            return message["result"]
    raise SystemExit("the server ended")

hello = call(1, "initialize", {"protocolVersion": "2025-06-18", "capabilities": {},
                               "clientInfo": {"name": "stranger", "version": "1"}})
assert hello["serverInfo"]["version"] == "v0.1.0", hello
print(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}), file=p.stdin, flush=True)
tools = {t["name"] for t in call(2, "tools/list", {})["tools"]}
assert "run_code" in tools, tools
run = call(3, "tools/call", {"name": "run_code", "arguments": {"code": "x = 6*7\nprint(x)"}})["structuredContent"]
assert run["stdout"] == "42\n" and run["verdict"]["code"] == "ok", run
again = call(4, "tools/call", {"name": "run_code", "arguments": {"code": "print(x+1)", "sandbox_id": run["sandbox_id"]}})
assert again["structuredContent"]["stdout"] == "43\n", again
p.stdin.close()
assert p.wait(timeout=60) == 0
PYTHON

step "update"
ln -sfn v0.2.0 "$work/www/latest"
stranger glovebox update --check 2>&1 | grep -q 'v0.2.0 is there' || fail "update --check does not see the new release"
stranger glovebox update 2>"$work/log" || fail "update: $(cat "$work/log")"
stranger glovebox version | grep -q 'v0.2.0' || fail "the program is not the new one"
[ "$(stranger glovebox run -c 'print(6*7)')" = 42 ] || fail "the new program runs nothing"

step "uninstall"
stranger glovebox uninstall 2>"$work/log" || fail "uninstall: $(cat "$work/log")"
# What it says that it keeps, the stranger now removes.
sed -nE 's/^kept: ([^,]+),.*/\1/p; s/^ *as it was: (.*)/\1/p' "$work/log" >"$work/kept"
[ "$(wc -l <"$work/kept")" -ge 3 ] || fail "uninstall said: $(cat "$work/log")"
while read -r path; do
	case $path in
	"$home"/*) rm -rf "$path" ;;
	*) fail "uninstall keeps $path, which is not in the home" ;;
	esac
done <"$work/kept"
cmp "$work/mcp.before" "$home/.cursor/mcp.json" || fail "the client's configuration is not what it was"
left=$(cd "$home" && find . -type f ! -path ./.cursor/mcp.json ! -name 'mcp.json.*' -o -type l -o -type s -o -type p)
[ -z "$left" ] || fail "left in the home: $left"
[ -z "$(ls -A "$work/tmp")" ] || fail "left in the directory for temporary files: $(ls -A "$work/tmp")"
! grep -q "$work" /proc/self/mountinfo || fail "mounts are left"
for exe in /proc/[0-9]*/exe; do
	case $(readlink "$exe" 2>/dev/null || true) in
	"$home"/*) fail "a process is left: $exe" ;;
	esac
done
step "nothing is left"
