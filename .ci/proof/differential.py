#!/usr/bin/env python3
"""The same valid and broken messages to two MCP servers on stdio: in which kinds of answers do they differ?

    .ci/proof/differential.py FABRIC_URL OURS OTHER [MESSAGES] [SEED]

OURS and OTHER are programs that bridge to the Fabric at FABRIC_URL, such as this one and the same bridge made with
another SDK. Each of MESSAGES (20,000) random messages is a valid one, or one with a single thing wrong with it. What
answers it, up to the answer to a ping sent after it, is put into a kind: nothing, a result, an error's code, or the end
of the process. Kinds that differ are counted for each kind of message, with the rule that decides between them. It exits
with 1 if there is a difference that no rule explains, or if OURS ever ends.
"""

import collections
import json
import os
import random
import selectors
import subprocess
import sys

REVISION = "2025-11-25"
# Seconds for an answer, and for one that comes after that to the ping.
DEADLINE = 5
PATIENCE = 0.1


class Server:
    """A program on stdio, started again whenever it ends."""

    def __init__(self, command):
        self.command, self.process, self.pings = command, None, 0

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.buffer = b""
        params = {"protocolVersion": REVISION, "capabilities": {}, "clientInfo": {"name": "differential", "version": "1"}}
        self.answers(request("initialize", params))
        self.send(encoded({"jsonrpc": "2.0", "method": "notifications/initialized"}))

    def send(self, line):
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def line(self):
        """The next line, or None at the end of the output or after the deadline."""
        while b"\n" not in self.buffer:
            if not self.selector.select(DEADLINE):
                return None
            piece = os.read(self.process.stdout.fileno(), 1 << 16)
            if not piece:
                return None
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def answers(self, message):
        """What answers a message, until a ping sent after it is answered; None if that does not happen."""
        if self.process is None:
            self.start()
        self.pings += 1
        ping = f"ping-{self.pings}"
        try:
            self.send(message)
            self.send(encoded({"jsonrpc": "2.0", "id": ping, "method": "ping"}))
        except OSError:
            return self.gone()
        found, is_alive = [], False
        own, is_call = id_of(message)
        # Some answer in another order.
        while not is_alive or is_call and not found and self.selector.select(PATIENCE):
            if (line := self.line()) is None:
                return self.gone()
            answer = json.loads(line)
            if isinstance(answer, dict) and answer.get("id") == ping:
                is_alive = True
            elif isinstance(answer, list) or ("result" in answer or "error" in answer) and answer.get("id") in (own, None):
                found.append(answer)
        return found

    def gone(self):
        self.process.kill()
        self.process.wait()
        self.process = None


def id_of(message):
    """The id of a message, if it can be one, and whether it asks for an answer."""
    try:
        value = json.loads(message)
        own = value["id"] if isinstance(value["id"], str | int) else None
        return own, own is not None and "method" in value
    except (ValueError, KeyError, TypeError):
        return None, False


def encoded(value):
    return json.dumps(value, ensure_ascii=False).encode()


def request(method, params=None):
    message = {"jsonrpc": "2.0", "id": random.randrange(1 << 40), "method": method}
    return encoded(message if params is None else message | {"params": params})


def kind(answers):
    if answers is None:
        return "ends"
    if not answers:
        return "nothing"
    first = answers[0]
    if isinstance(first, list):
        return "batch"
    if "error" in first:
        return str(first["error"].get("code"))
    is_error = isinstance(first.get("result"), dict) and first["result"].get("isError")
    return "isError" if is_error else "result"


TEMPLATES = {
    "ping": ("ping", None),
    "tools/list": ("tools/list", {}),
    "call": ("tools/call", {"name": "fabric_list_patterns", "arguments": {}}),
    "unknown tool": ("tools/call", {"name": "fabric_no_such_tool", "arguments": {}}),
    "unknown method": ("no/such/method", {}),
}
ODD = [None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "\u0000", "é漢😀", [], {}, [[]], {"a": {"b": []}}, "9" * 300]


def message():
    """A message, and the kind of thing that is wrong with it."""
    name = random.choice(list(TEMPLATES))
    line = request(*TEMPLATES[name])
    value = json.loads(line)
    wrong = random.choice(["nothing", "member missing", "member odd", "id odd", "method odd", "params odd", "version",
                           "member more", "no object", "cut", "byte", "twice", "notification", "response", "blank",
                           "deep", "spaces", "not UTF-8"])
    match wrong:
        case "member missing":
            gone = random.choice(["jsonrpc", "method"])
            del value[gone]
            return f"{gone} missing", encoded(value)
        case "member odd":
            if not isinstance(value.get("params"), dict) or not value["params"]:
                return f"{name}", line
            key = random.choice(list(value["params"]))
            odd = random.choice(ODD)
            value["params"][key] = odd
            return f"{key} {type(odd).__name__}", encoded(value)
        case "id odd" | "method odd" | "params odd":
            key, odd = wrong.split()[0], random.choice(ODD)
            value[key] = odd
            return f"{key} {'huge' if odd == 2**70 else type(odd).__name__}", encoded(value)
        case "version":
            value["jsonrpc"] = random.choice(["1.0", "2", 2.0, None])
            return "jsonrpc odd", encoded(value)
        case "member more":
            value["more"] = random.choice(ODD)
            return name, encoded(value)
        case "no object":
            odd = random.choice([None, True, 1, "x", "[]", "{}"])
            return ("empty object" if odd == "{}" else "no object"), (odd.encode() if odd == "{}" else encoded(odd))
        case "cut":
            return "not JSON", line[: random.randrange(1, len(line))]
        case "byte":
            at = random.randrange(len(line))
            return "byte changed", line[:at] + bytes([random.randrange(32, 127)]) + line[at + 1 :]
        case "twice":
            return "method twice", line[:-1] + b', "method": "ping"}'
        case "notification":
            del value["id"]
            return "notification", encoded(value)
        case "response":
            return "response", encoded({"jsonrpc": "2.0", "id": 1, "result": {}})
        case "blank":
            return "blank", random.choice([b"", b" ", b"\t"])
        case "deep":
            return "deep", request("ping", {"a": 0}).replace(b"0}}", b"[" * 200 + b"]" * 200 + b"}}")
        case "spaces":
            return name, b"  " + line.replace(b": ", b" :  ") + b" \r"
        case "not UTF-8":
            return "not UTF-8", line[:-1] + b', "more": "\xff\xfe"}'
    return name, line


# What decides, for kinds of messages and the answers of OURS.
JSON_RPC = "JSON-RPC 2.0, section 5.1"
RULES = [
    (("not JSON", "not UTF-8", "byte changed"), "-32700", f"{JSON_RPC}: invalid JSON is -32700, id null"),
    (("deep",), "-32600", "RFC 8259, section 9: an implementation may limit the depth"),
    (("jsonrpc missing", "method missing", "jsonrpc odd", "no object", "empty object", "method", "byte changed"), "-32600",
     f"{JSON_RPC}: what is JSON and no valid Request is -32600"),
    (("id",), "-32600", "MCP, Requests: an id is a string or an integer, and not null"),
    (("method twice",), "-32602", "RFC 8259, section 4: names should be unique; guards must not read another one"),
    (("params", "name", "arguments", "byte changed"), "-32602", f"{JSON_RPC}: params that are no object are -32602"),
    (("method", "unknown method", "byte changed"), "-32601", f"{JSON_RPC}: an unknown method is -32601"),
    (("unknown tool", "name", "byte changed"), "-32602", "MCP, Tools, Error Handling: an unknown tool is -32602"),
    (("arguments", "name", "byte changed"), "isError", "MCP, Tools, Error Handling: wrong arguments are an isError result"),
    (("notification", "response", "blank", "id", "byte changed"), "nothing", f"{JSON_RPC}: only requests are answered"),
    (("ping", "tools/list", "call", "params", "arguments", "byte changed"), "result",
     "MCP: params of these methods are optional, and unknown members are ignored"),
]


def rule(what, ours):
    for kinds, answer, why in RULES:
        if answer == ours and any(what == one or what.startswith(one + " ") for one in kinds):
            return why
    return None


def main():
    url, ours, other = sys.argv[1:4]
    count = int(sys.argv[4]) if len(sys.argv) > 4 else 20_000
    random.seed(int(sys.argv[5]) if len(sys.argv) > 5 else 1)
    os.environ["FABRIC_BASE_URL"] = url
    servers = [Server([ours]), Server([other])]
    equal, differences, ends = 0, collections.defaultdict(list), collections.Counter()
    for _ in range(count):
        what, line = message()
        kinds = [kind(server.answers(line)) for server in servers]
        if kinds[0] != kinds[1]:
            # An answer may get lost by chance: only what happens again counts.
            kinds = [kind(server.answers(line)) for server in servers]
        ends.update(server.command[0] for server, one in zip(servers, kinds) if one == "ends")
        if kinds[0] == kinds[1]:
            equal += 1
        else:
            differences[(what, *kinds)].append(line)
    unexplained = 0
    for (what, one, two), lines in sorted(differences.items()):
        why = rule(what, one)
        unexplained += why is None
        print(f"{len(lines):6}  {what}: {one}, the other {two}. {why or 'NO RULE: ' + repr(min(lines, key=len)[:200])}")
    print(f"{count} messages, {equal} equal, {len(differences)} kinds of differences, {unexplained} without a rule; "
          f"ended: {ends[ours]} and {ends[other]} times")
    return 1 if unexplained or ends[ours] else 0


if __name__ == "__main__":
    sys.exit(main())
