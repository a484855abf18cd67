#!/bin/bash
# What the stranger of stranger.sh does, and what must be true then:
#
#	stranger-steps.sh URL user|DIRECTORY
#
# URL is where the releases are. With "user" this is a machine where nothing else
# is, and the stranger its user of that name; else it is whoever calls this, with
# an empty home in DIRECTORY.
set -euo pipefail
url=$1

fail() {
	echo "stranger: FAILED: $*" >&2
	exit 1
}
step() { echo "stranger: $* (after $SECONDS s)"; }

release=v0.1.0 # what the newest one is
if [ "$2" = user ]; then
	home=/home/stranger tmp=/tmp work=/srv
	as=(setpriv --reuid stranger --regid stranger --init-groups)
else
	home=$2/home tmp=$2/tmp work=$2
	as=()
fi
stranger() {
	(cd "$home" && exec "${as[@]}" env -i HOME="$home" TMPDIR="$tmp" LANG=C.UTF-8 \
		PATH="$home/.local/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin" \
		GLOVEBOX_UPDATE_URL="$url/$release/" "$@")
}
# Everything that is there, but for what this script writes.
everything() {
	local top=$home
	[ "$2" != user ] || top=/
	find "$top" -xdev \( -path "$work" -a ! -path "$top" -o -path /proc -o -path /sys -o -path /dev \) -prune -o \
		-type d -printf '%p/\n' -o -printf '%p %y %s %m %U\n' | sort
}

# What the stranger runs, but for what has ended and only waits for its parent.
processes() {
	local proc
	for proc in /proc/[0-9]*; do
		case $(readlink "$proc/exe" 2>/dev/null || true) in
		"$home"/*)
			echo "$proc"
			continue
			;;
		esac
		if [ "$2" = user ] && grep -q "^Uid:.*$(id -u stranger)" "$proc/status" 2>/dev/null &&
			! grep -q '^State:.*Z' "$proc/status" 2>/dev/null; then
			echo "$proc"
		fi
	done
}

# There is one MCP client already, with a server.
stranger mkdir "$home/.cursor"
stranger sh -c 'cat >.cursor/mcp.json' <<'JSON'
{
  // what was here before
  "mcpServers": {
    "other": { "command": "other-server", "args": [] },
  }
}
JSON
cp "$home/.cursor/mcp.json" "$work/mcp.before"
everything "$@" >"$work/before"

step "install.sh refuses what is not whole"
curl -fsS -o "$work/install.sh" "$url/$release/install.sh"
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
stranger sh -c "curl -fsSL $url/$release/install.sh | sh -s -- --url $url/$release --dir \"\$HOME/.local/bin\" --no-configure" >"$work/log" 2>&1 ||
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
release=v0.2.0
stranger glovebox update --check >"$work/log" 2>&1 || fail "update --check: $(cat "$work/log")"
grep -q 'v0.2.0 is available' "$work/log" || fail "update --check does not see the new release"
stranger glovebox update 2>"$work/log" || fail "update: $(cat "$work/log")"
[[ $(stranger glovebox version) == *v0.2.0* ]] || fail "the program is not the new one"
[ "$(stranger glovebox run -c 'print(6*7)')" = 42 ] || fail "the new program runs nothing"

step "uninstall"
stranger glovebox uninstall 2>"$work/log" || fail "uninstall: $(cat "$work/log")"
# What it says that it keeps, the stranger now removes.
sed -nE 's/^kept: ([^,]+),.*/\1/p; s/^ *(copy of the old file|earlier copy): (.*)/\2/p' "$work/log" >"$work/kept"
[ "$(wc -l <"$work/kept")" -ge 3 ] || fail "uninstall said: $(cat "$work/log")"
while read -r path; do
	case $path in
	"$home"/*) rm -rf "$path" ;;
	*) fail "uninstall keeps $path, which is not in the home" ;;
	esac
done <"$work/kept"
cmp "$work/mcp.before" "$home/.cursor/mcp.json" || fail "the client's configuration is not what it was"
# A sandbox ends within a second of what had it.
for _ in $(seq 10); do
	left=$(processes "$@")
	[ -n "$left" ] || break
	sleep 0.1
done
[ -z "$left" ] || fail "processes are left: $left"
everything "$@" >"$work/after"
# Empty directories on the way to what was there may stay.
left=$(comm -3 "$work/before" "$work/after" | grep -vE '/\.(local|config|cache)(/[a-z]+)*/$' || true)
[ -z "$left" ] || fail "not as it was: $left"
[ -z "$(ls -A "$tmp")" ] || fail "left in the directory for temporary files: $(ls -A "$tmp")"
! grep -q "$home" /proc/self/mountinfo || fail "mounts are left"
step "nothing is left"
