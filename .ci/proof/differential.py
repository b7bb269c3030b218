#!/usr/bin/env python3
"""The same valid and broken messages and command lines to two builds of this program: where do they differ?

    .ci/proof/differential.py BEFORE NOW [--messages 20000] [--seed 1] [--only stdio,http,sse,cli] [--explained FILE]

Each build runs with the same random messages in front of a Fabric that is part of this script, and that fails in many
ways: what it does is told by the pattern's name and by its address, so that it is the same for both. Messages are valid,
or have a single thing wrong with them, in each revision of MCP, over each transport. Whole answers are compared: bytes,
statuses and headers, after ids, times and ports are replaced by their names, and pieces of progress are joined.

Differences are grouped by where they are. A line REGEX<tab>REASON of FILE explains those in whose text (transport, kind
of message, place, what was, what is) it is found. It exits with 1 if a difference has no reason, or if NOW ever panics,
ends, or leaves a request without an answer.
"""

import argparse
import asyncio
import base64
import collections
import itertools
import json
import multiprocessing
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
MODERN = REVISIONS[-1]
# Seconds for an answer.
DEADLINE = 20
MIB = 1 << 20
# Stands where only the other build has something.
NOTHING = "(nothing)"


# A Fabric that fails as it is told.

HTTP_FAILURES = {
    "401": ("401 Unauthorized", b'{"error":"Wrong API Key"}'),
    "403": ("403 Forbidden", b'{"error":"no"}'),
    "404": ("404 Not Found", b"404 page not found"),
    "429": ("429 Too Many Requests\r\nRetry-After: 7", b'{"error":"slow down"}'),
    "500": ("500 Internal Server Error", b'"could not load x/system.md: open /home/me/x/system.md: no such file"'),
    "502": ("502 Bad Gateway", b"<html>"),
    "503": ("503 Service Unavailable\r\nRetry-After: 1", b""),
    "redirect": ("302 Found\r\nLocation: http://127.0.0.1:1/", b""),
    "garbage": ("200 OK", b'{"models": [1, '),
    "null": ("200 OK", b"null"),
    "odd": ("200 OK", b'{"models":{"a":1},"vendors":[],"Name":7,"Pattern":null}'),
    "latin": ("200 OK", b'["caf\xe9"]'),
}
BREAKS = {"reset": b"", "noise": b"\0\1\2 no HTTP\r\n\r\n", "cut": b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[\"su"}
TEXT = "# Title\n\nOne é漢😀 two. "
COMPLETE = {"type": "complete"}


def content(text, **more):
    return {"type": "content", "content": text} | more


CHATS = {
    "summarize": [content(TEXT, format="markdown"), content("three"), COMPLETE],
    "translate": [content("ein "), {"type": "usage", "usage": {"input_tokens": 3, "output_tokens": 4}}, content("zwei"), COMPLETE],
    "think": [content("<think>hm"), content("</think>\n\nso"), COMPLETE],
    "mermaid": [content("graph "), content("TD; a-->b"), COMPLETE],
    "long": [content(TEXT * 9000), COMPLETE],
    "tiny": [content(c) for c in TEXT * 9] + [COMPLETE],
    "blank": [content("  \n"), COMPLETE],
    "empty": [COMPLETE],
    "error": [{"type": "error", "content": "Error: no model x at /home/me/.env https://a.b/?key=sk-1234567890"}, COMPLETE],
    "late_error": [content("some"), {"type": "error", "format": "plain", "content": "rate limited"}, COMPLETE],
    "no_complete": [content("some")],
    "no_event": [],
    "unknown_event": [content("some"), {"type": "new", "x": 1}, COMPLETE],
    "odd_event": [content("some"), {"type": "content", "content": 7}, COMPLETE],
    "after_complete": [content("some"), COMPLETE, content("more")],
}
RAW_CHATS = {
    "not_json": b'data: {"type":"content","content":"some"}\n\ndata: {oops\n\n',
    "sse_forms": b'\xef\xbb\xbf: hi\r\nid: 1\r\nevent: x\r\ndata:{"type":"content",\r\ndata: "content":"some"}\r\n\r\n'
                 b'retry: 5\r\n\r\ndata: {"type":"complete"}\r\n\r\n',
    "cut_event": b'data: {"type":"content","content":"some"}\n\ndata: {"type":"con',
    "latin_event": b'data: {"type":"content","content":"caf\xe9"}\n\ndata: {"type":"complete"}\n\n',
}
WAITING = ["hang", "drip"]
PATTERNS = [*CHATS, *RAW_CHATS, "cut_stream", "huge", *HTTP_FAILURES, *BREAKS, "create_coding_feature", *WAITING]
LISTS = {
    "models": {"models": ["m1", "m2", "m2"], "vendors": {"V": ["m1", "m2"], "W": ["m2"]}},
    "strategies": [{"name": "cot", "description": "Chain of thought", "prompt": "Think."}, {"name": "tot"}],
    "config": {"openai": "sk-secret", "ollama": "http://u:p@h:1/x", "empty": "", "on": "true", "nested": {"a": ["b"]}},
    "contexts": ["about me"],
    "sessions": None,
    "youtube": {"transcript": TEXT * 50, "videoId": "dQw4w9WgXcQ", "title": "A title", "description": ""},
}


def plain(status, body):
    return f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def ok(value):
    return plain("200 OK", json.dumps(value).encode())


def failure(how):
    """The bytes of a failed answer, and whether the connection ends after it; None if that is no failure."""
    if how in BREAKS:
        return BREAKS[how], True
    return (plain(*HTTP_FAILURES[how]), False) if how in HTTP_FAILURES else None


def streamed(pieces, whole=True):
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/readystream\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + (b"0\r\n\r\n" if whole else b"")


def chat(body):
    name = body["prompts"][0]["patternName"]
    if name in RAW_CHATS:
        # In pieces that cut lines and characters.
        raw = RAW_CHATS[name]
        return streamed([raw[at : at + 7] for at in range(0, len(raw), 7)]), False
    if name in WAITING + ["cut_stream"]:
        events, whole = [] if name == "hang" else [content("some")], False
    else:
        events, whole = CHATS.get(name, CHATS["summarize"]), True
    if name == "huge":
        events = [content("x" * MIB)] * 33
    return streamed([b"data: %s\n\n" % json.dumps(event).encode() for event in events], whole), not whole


def fabric_answer(how, path, body, known):
    """What this Fabric answers on a path below the folder that says how it fails."""
    what, _, name = path.partition("/")
    if path == "chat":
        return failure(json.loads(body)["prompts"][0]["patternName"]) or chat(json.loads(body))
    if what == "patterns" and name != "names":
        name = name.split("/")[0].replace("%20", " ")
        if name not in known:
            return failure("500")
        text = "# IDENTITY\n\nYou are an expert. You do " + name.replace("_", " ") + ".\n\n# INPUT\n"
        text += "{{lang_code}} {{input}}" if name == "translate" else ""
        text = text.replace("{{input}}", "").replace("{{lang_code}}", "de") if path.endswith("/apply") else text
        return failure(name) or (ok({"Name": name, "Description": "", "Pattern": text}), False)
    return failure(how) or (ok(known if what == "patterns" else LISTS.get(what)), False)


def fabric(listener, known):
    async def serve(reader, writer):
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = re.search(rb"(?i)content-length: (\d+)", head)
                body = await reader.readexactly(int(length[1])) if length else b""
                how, _, path = head.split()[1].decode()[1:].partition("/")
                answer, ends = fabric_answer(how, path.split("?")[0], body, known)
                writer.write(answer)
                await writer.drain()
                if path == "chat" and json.loads(body)["prompts"][0]["patternName"] in WAITING:
                    await reader.read(1)
                if ends:
                    break
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        writer.close()

    async def run():
        async with await asyncio.start_server(serve, sock=listener) as server:
            await server.serve_forever()

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(run())


# Random messages.

ODD = [None, True, 0, -1, 1.5, 1e300, 2**70, "", "x", "\u0000", "é漢😀", [], {}, [[]], {"a": {"b": []}}, "9" * 300, "../x"]
PATTERN = PATTERNS[: -len(WAITING)] * 2 + ["summarize", "translate"] * 8 + ["no_such", "../etc", "sumarize"]
PATTERN = [name for name in PATTERN if name != "huge"] * 4 + ["huge"]
TASK = ["summarize a text", "translate into German", "sumarize", "find weaknesses of an argument", "cook", "long", ""]
CUT = {"offset": [0, 3, 10**9], "max_chars": [1, 5, 10**6]}
RUN = {
    "pattern_name": PATTERN, "input_text": ["x", TEXT, "{{x}}"] * 5 + [""], "stream": [True, False],
    "dry_run": [True], "model_name": ["m1", "m2", "none"], "vendor_name": ["V", "no"], "strategy_name": ["cot", "no"],
    "context_name": ["about me", "no"], "session_name": ["s"], "language": ["de", "pt-BR", "??"],
    "variables": [{"lang_code": "de"}, {"x": "{{plugin:sys:env:A}}"}, {"lang_code": 7}], "attachments": [["a"]] + [[]] * 9,
    "temperature": [0, 0.5, 3], "top_p": [0.5, 2], "thinking": ["off", "high", "77", "much"], "search": [True],
    "search_location": ["Europe/Berlin"], "context_length": [4096], "strip_thinking": [True], "max_chars": [1, 10, 10**9],
    "wait_seconds": [60, 4000], "then": [[{"pattern_name": "translate", "variables": {"lang_code": "de"}}],
                                         [{"pattern_name": "error"}, {"pattern_name": "think"}], [{"x": 1}], []],
    "input_from": [{"run_id": "@run@"}, {"youtube": "https://youtu.be/dQw4w9WgXcQ"}, {"url": "file:///etc"}],
}
# The arguments of each tool with values for them; the first one is nearly always there.
TOOLS = {
    "fabric_list_patterns": {"query": TASK, "limit": [1, 3, 10**6]},
    "fabric_get_pattern_details": {"pattern_name": PATTERN} | CUT,
    "fabric_run_pattern": RUN,
    "fabric_get_run": {"run_id": ["@run@"] * 3 + ["run_" + "0" * 32], "wait_seconds": [0, 1]} | CUT,
    "fabric_cancel_run": {"run_id": ["@run@"]},
    "fabric_get_transcript": {"url": ["https://youtu.be/dQw4w9WgXcQ", "https://a.b/"], "timestamps": [True]} | CUT,
    "fabric_list_models": {}, "fabric_list_strategies": {}, "fabric_list_contexts": {}, "fabric_get_configuration": {},
    "fabric_no_such_tool": {},
}
URIS = ["fabric://pattern/summarize", "fabric://pattern/500", "fabric://strategy/cot", "fabric://x", "skill://x/SKILL.md"]
METHODS = {
    "ping": {}, "tools/list": {"cursor": ["x"]}, "prompts/list": {"cursor": ["MA=="]}, "resources/list": {"cursor": [""]},
    "resources/templates/list": {}, "server/discover": {}, "no/such/method": {}, "skills/list": {}, "tasks/list": {},
    "prompts/get": {"name": PATTERN, "arguments": [{"input_text": "x"}, {"strategy_name": "cot"}, {"x": "y"}]},
    "resources/read": {"uri": URIS}, "skills/get": {"uri": URIS}, "tasks/update": {"taskId": ["@run@"]},
    "resources/subscribe": {"uri": URIS},
    "tasks/get": {"taskId": ["@run@"]}, "tasks/result": {"taskId": ["@run@"]}, "tasks/cancel": {"taskId": ["@run@"]},
    "completion/complete": {"ref": [{"type": "ref/prompt", "name": "summarize"}, {"type": "ref/x"},
                                    {"type": "ref/resource", "uri": "fabric://pattern/{name}"}],
                            "argument": [{"name": "name", "value": "su"}, {"name": "strategy_name", "value": ""}]},
    "logging/setLevel": {"level": ["info", "warning", "loud"]},
    "initialize": {"protocolVersion": [*REVISIONS, "1"], "capabilities": [{}], "clientInfo": [{"name": "d", "version": "1"}]},
}
FAULTS = ["member missing", "id odd", "method odd", "params odd", "version", "member more", "no object", "cut", "byte",
          "twice", "notification", "response", "blank", "deep", "spaces", "not UTF-8", "param odd", "param missing"]


def encoded(value):
    return json.dumps(value, ensure_ascii=False).encode()


class Author:
    """The random messages of one client, as lists of steps (what, line) of which each waits for the one before it."""

    def __init__(self, seed, revision):
        self.random, self.revision, self.count = random.Random(seed), revision, 0

    def request(self, method, params, meta=None):
        self.count += 1
        if self.revision == MODERN:
            meta = {"io.modelcontextprotocol/protocolVersion": MODERN, "io.modelcontextprotocol/clientCapabilities": {}} | (meta or {})
        params = params | ({"_meta": meta} if meta else {})
        message = {"jsonrpc": "2.0", "id": self.count, "method": method}
        return message | ({"params": params} if params or self.random.random() < 0.5 else {})

    def some(self, values):
        """Values for the first name, nearly always, and a few others."""
        names = [name for at, name in enumerate(values) if self.random.random() < (0.95 if at == 0 else 1.5 / len(values))]
        return {name: self.random.choice(ODD if self.random.random() < 0.04 else values[name]) for name in names}

    def call(self, tool, arguments, **more):
        meta = self.random.choice([{}, {}, {"progressToken": self.random.choice(["t", 7])}])
        if self.revision == MODERN and self.random.random() < 0.3:
            meta["io.modelcontextprotocol/logLevel"] = self.random.choice(["info", "error", "loud"])
        return self.request("tools/call", {"name": tool, "arguments": arguments} | more, meta)

    def valid(self):
        """A kind and a request."""
        if self.random.random() < 0.4:
            method = self.random.choice(list(METHODS))
            if method == "initialize" and self.random.random() < 0.9:
                method = "ping"
            return method, self.request(method, self.some(METHODS[method]))
        tool = self.random.choice([*TOOLS] + ["fabric_run_pattern"] * 8)
        arguments = self.some(TOOLS[tool])
        if tool == "fabric_run_pattern" and self.random.random() < 0.9:
            # What is refused before Fabric is asked would hide how Fabric's answers are told.
            arguments = {"input_text": "x", "variables": {"lang_code": "de"}} | arguments
        kind = f"{tool} {arguments.get('pattern_name', '')}".strip()
        return kind, self.call(tool, arguments)

    def steps(self):
        roll = self.random.random()
        if roll < 0.02:
            return self.long_run()
        if roll < (0.1 if self.revision == "2025-03-26" else 0.03):
            messages = [self.valid()[1] for _ in range(self.random.randrange(5))]
            messages = [one for one in messages if one["method"] not in ("initialize", "logging/setLevel")]
            # One run at most, for which of two begins first is left to chance.
            runs = [one for one in messages if b"fabric_run_pattern" in encoded(one) or b"@run@" in encoded(one)]
            return [("batch", encoded([one for one in messages if one not in runs[1:]]))]
        kind, value = self.valid()
        if roll < 0.7:
            return [(kind, encoded(value))]
        kind = value["method"]
        fault, line = self.spoiled(value)
        return [(f"{kind}: {fault}", line)]

    def long_run(self):
        """What is only seen on runs that do not end by themselves."""
        which = self.random.randrange(5)
        if which == 0:
            call = self.call("fabric_run_pattern", {"pattern_name": "drip", "input_text": "x", "stream": True})
            call["params"]["_meta"] = call["params"].get("_meta", {}) | {"progressToken": "t"}
            return [("cancelled", encoded(call))]
        if which == 1 and self.revision == MODERN:
            wanted = self.random.choice([{"toolsListChanged": True}, {"promptsListChanged": True}, {"x": 1}, {}])
            return [("listen", encoded(self.request("subscriptions/listen", {"notifications": wanted})))]
        if which < 4:
            call = self.call("fabric_run_pattern", {"pattern_name": "hang", "input_text": "x", "wait_seconds": 0})
            more = [("fabric_get_run", {"run_id": "@run@", "wait_seconds": 0}), ("fabric_cancel_run", {"run_id": "@run@"}),
                    ("fabric_get_run", {"run_id": "@run@", "wait_seconds": 5})]
            return [("hang", encoded(call))] + [(f"hang {name}", encoded(self.call(name, what))) for name, what in more]
        pattern = self.random.choice(["hang", "summarize", "error", "cut_stream"])
        if self.revision != "2025-11-25":
            return []
        call = self.call("fabric_run_pattern", {"pattern_name": pattern, "input_text": "x"}, task={"ttl": 60000})
        more = ["tasks/get", "tasks/cancel", "tasks/result"] if pattern == "hang" else ["tasks/result", "tasks/get"]
        return [(f"task {pattern}", encoded(call))] + \
               [(f"task {pattern} {one}", encoded(self.request(one, {"taskId": "@run@"}))) for one in more]

    def spoiled(self, value):
        """What is wrong, and the message with a single thing wrong with it."""
        fault, odd, line = self.random.choice(FAULTS), self.random.choice(ODD), encoded(value)
        params = value.get("params", {})
        name = self.random.choice(list(params) or [""])
        match fault:
            case "member missing":
                fault = self.random.choice(["jsonrpc", "method"])
                del value[fault]
                return f"{fault} missing", encoded(value)
            case "param odd" | "param missing" if name:
                value["params"] = {key: one for key, one in params.items() if key != name}
                if fault == "param odd":
                    value["params"][name] = odd
                return f"{fault[6:]} {name}", encoded(value)
            case "id odd" | "method odd" | "params odd":
                value[fault.split()[0]] = odd
                return f"{fault} {'huge' if odd == 2**70 else type(odd).__name__}", encoded(value)
            case "version":
                return "jsonrpc odd", encoded(value | {"jsonrpc": self.random.choice(["1.0", "2", 2.0, None])})
            case "member more":
                return fault, encoded(value | {"more": odd})
            case "no object":
                return fault, self.random.choice([b"null", b"1", b'"x"', b"[]", b"{}", b"[[]]", b"[1]"])
            case "cut":
                return fault, line[: self.random.randrange(1, len(line))]
            case "byte":
                at = self.random.randrange(len(line))
                return fault, line[:at] + bytes([self.random.randrange(32, 127)]) + line[at + 1 :]
            case "twice":
                return fault, line[:-1] + b', "method": "ping"}'
            case "notification":
                del value["id"]
                kinds = ["notifications/initialized", "notifications/cancelled", "no/such", value["method"]]
                return fault, encoded(value | {"method": self.random.choice(kinds[:3])})
            case "response":
                return fault, encoded({"jsonrpc": "2.0", "id": 1, "result": {}})
            case "blank":
                return fault, self.random.choice([b"", b" ", b"\t"])
            case "deep":
                return fault, line[:-1] + b', "more": ' + b"[" * 200 + b"]" * 200 + b"}"
            case "spaces":
                return fault, b"\xef\xbb\xbf  " + line.replace(b": ", b" :  ") + b" \r"
            case "not UTF-8":
                return fault, line[:-1] + b', "more": "\xff\xfe"}'
        return "nothing", line


# Clients.

NAMES = [(re.compile(pattern), name) for pattern, name in [
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "<time>"), (r"\b[0-9a-f]{16}\b", "<request>"), (r"127\.0\.0\.1:\d+", "<address>"),
    (r'(duration_ms|total_ms|first_piece_ms|latency_ms|age_seconds)(\\*": ?)[\d.]+', r"\1\g<2>0"), (r"\b\d+\.\d+ m?s\b", "<duration>"),
    (r"(?m)^<time> INFO .*\n", ""), (r'"ttlMs":[1-9]\d{3,5}\b', '"ttlMs":300000'), (r'"(t|ping-)\d*"', '"<token>"')]]
ID = re.compile(r"(?:run_)?\b[0-9a-f]{32}\b|run_[0-9a-f]{32}")


class Gone(Exception):
    """The program has ended, or does not answer."""


class Client:
    """What all clients of one build know: the ids that it gave, and how its answers are compared."""

    def __init__(self, revision, flags=()):
        self.revision, self.ids, self.last_run, self.steps = revision, {}, "run_" + "f" * 32, 0

    def filled(self, line):
        self.steps += 1
        return line.replace(b"@run@", self.last_run.encode())

    def name(self, match):
        if match[0] not in self.ids:
            self.ids[match[0]] = f"<id {self.steps}>"
            self.last_run = match[0] if match[0].startswith("run_") else self.last_run
        return self.ids[match[0]]

    def comparable(self, found):
        """Texts without what is random, and pieces of progress joined."""
        whole, told = [], {}
        for text in found:
            text = ID.sub(self.name, text)
            for pattern, name in NAMES:
                text = pattern.sub(name, text)
            value = parsed(text)
            if isinstance(value, list):
                # A batch's answers come as they are done.
                text = json.dumps(sorted(value, key=json.dumps), ensure_ascii=False)
            params = value.get("params", {}) if isinstance(value, dict) else {}
            data = params.get("data")
            if isinstance(value, dict) and value.get("method") == "notifications/tasks/status":
                # Comes before or after the answer that tells the same.
                continue
            if "progressToken" in params:
                key, piece = f"progress of {params['progressToken']}", params.get("message", "")
            elif isinstance(data, dict) and "content" in data:
                key, piece = "message", data.pop("content")
            else:
                whole.append(text)
                continue
            told.setdefault(key, []).append(piece)
        return whole + [f"{key}: {''.join(pieces)}" for key, pieces in sorted(told.items())]


def parsed(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


def id_of(line):
    """The id that is surely answered, if there is one; of a batch, any."""
    value = parsed(line.decode("utf-8-sig", "replace"))
    for one in value if isinstance(value, list) else [value]:
        own = one.get("id") if isinstance(one, dict) and "method" in one else None
        if isinstance(own, str | int) and not isinstance(own, bool):
            return own
    return None


def handshake(revision):
    params = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "d", "version": "1"}}
    return [encoded({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}),
            encoded({"jsonrpc": "2.0", "method": "notifications/initialized"})]


class Pipe(Client):
    """A client on stdio: a process of its own."""

    async def open(self, build):
        self.process = await build.start()
        if self.revision not in (None, MODERN):
            for line in handshake(self.revision):
                await self.exchange("", line)

    async def close(self):
        self.process.stdin.close()
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    async def send(self, line):
        self.process.stdin.write(line + b"\n")

    async def receive(self):
        if not (line := await self.process.stdout.readline()):
            raise Gone("the output ended")
        return line.decode().removesuffix("\n")

    async def exchange(self, what, line):
        """All that comes until the message, and a ping sent after it, are answered."""
        found, own, line, ping = [], id_of(line), self.filled(line), f"ping-{self.steps}"
        sent = await self.send(line)
        if what in ("cancelled", "listen"):
            # Some progress, or what was wrong with the request.
            while not found or "notifications/message" in found[-1]:
                found.append(await self.receive())
            cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": own}}
            await self.send(encoded(cancel))
            own = None
        await self.send(encoded({"jsonrpc": "2.0", "id": ping, "method": "ping"}))
        is_alive, is_answered = False, own is None or sent and " 202 " not in sent
        while not is_alive or not is_answered:
            text = await self.receive()
            if f'"{ping}"' in text:
                is_alive = True
            else:
                found.append(text)
                is_answered = is_answered or '"method":"notifications/' not in text
        return self.comparable(([sent] if sent else []) + found)


class Http:
    """A connection, kept alive, and what comes over it."""

    def __init__(self, port):
        self.port, self.reader = port, None

    async def ask(self, method, path, headers, body=b""):
        """The status and headers that matter; `body` or `line` get the rest."""
        # The server closes connections that were idle for long.
        if self.reader is None or self.reader.at_eof():
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port, limit=64 * MIB)
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items() if value is not None)]
        lines += [f"Content-Length: {len(body)}"] if body or method == "POST" else []
        self.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        first, *rest = head.lower().strip().split("\r\n")
        self.headers = dict(line.split(": ", 1) for line in rest if ": " in line)
        kept = sorted(f"{name}: {value}" for name, value in self.headers.items() if name not in ("date", "content-length"))
        return "; ".join([first, *kept])

    async def body(self):
        if "chunked" in self.headers.get("transfer-encoding", ""):
            body = b""
            while piece := await self.piece():
                body += piece
        elif "content-length" in self.headers:
            body = await self.reader.readexactly(int(self.headers["content-length"]))
        else:
            body = await self.reader.read() if " 204" not in self.headers else b""
        if self.headers.get("connection") == "close":
            self.close()
        return body

    async def piece(self):
        size = int(await self.reader.readline(), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    def close(self):
        if self.reader is not None:
            self.writer.close()
            self.reader = None


def header(value):
    """A value of a body as a header has it."""
    if not isinstance(value, str):
        return None
    plain = value.isascii() and value.isprintable() and value == value.strip()
    return value if plain else f"=?base64?{base64.b64encode(value.encode('utf-8', 'replace')).decode()}?="


def events(body):
    """The data of the events of a body, without comments."""
    return [line.removeprefix("data: ") for line in body.decode().splitlines() if line and not line.startswith(":")]


HTTP_FAULTS = [
    {"Accept": "application/json"}, {"Accept": "text/event-stream"}, {"Accept": "text/html"}, {"Accept": None},
    {"Content-Type": "text/plain"}, {"Content-Type": None}, {"Origin": "https://evil.example"}, {"Host": "evil.example"},
    {"MCP-Protocol-Version": "1999-01-01"}, {"MCP-Protocol-Version": "2025-03-26"}, {"MCP-Protocol-Version": None},
    {"Mcp-Session-Id": None}, {"Mcp-Session-Id": "x"}, {"Mcp-Session-Id": "2025-06-18." + "0" * 31 + "1"},
    {"Mcp-Method": "x"}, {"Mcp-Method": None}, {"Mcp-Name": None}, {"Mcp-Name": "=?base64?Zm9v?="}, {"Authorization": "Bearer x"},
    {"Authorization": None}, {"method": "PUT"}, {"method": "OPTIONS", "Origin": "http://localhost"}, {"method": "DELETE"},
    {"method": "GET"}, {"method": "HEAD"}, {"path": "/nope"}, {"path": "/healthz", "method": "GET"}, {"path": "/readyz", "method": "GET"},
]


class Streamable(Client):
    """A client over Streamable HTTP: a session, or none for the newest revision."""

    async def open(self, build):
        self.build, self.http, self.session = build, Http(build.port), None
        if self.revision not in (None, MODERN):
            first, second = handshake(self.revision)
            await self.http.ask("POST", "/mcp", self.headers(first), first)
            await self.http.body()
            self.session = self.http.headers.get("mcp-session-id")
            await self.http.ask("POST", "/mcp", self.headers(second), second)
            await self.http.body()

    async def close(self):
        self.http.close()
        return 0

    def headers(self, line):
        headers = {"Host": f"127.0.0.1:{self.http.port}", "Content-Type": "application/json",
                   "Accept": "application/json, text/event-stream", "Mcp-Session-Id": self.session}
        value = parsed(line.decode("utf-8-sig", "replace"))
        if self.revision == MODERN:
            value = value if isinstance(value, dict) else {}
            params = value.get("params") if isinstance(value.get("params"), dict) else {}
            headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": header(value.get("method")),
                        "Mcp-Name": header(params.get("name", params.get("uri", params.get("taskId"))))}
        elif self.session:
            headers["MCP-Protocol-Version"] = self.revision
        return headers

    async def exchange(self, what, line):
        line = self.filled(line)
        headers, choice, fault = self.headers(line), random.Random(f"{self.steps} {what}"), {}
        if what.split(" ")[0] not in ("cancelled", "listen", "hang", "task") and choice.random() < 0.12:
            fault = choice.choice(HTTP_FAULTS)
        headers |= fault
        method, path = headers.pop("method", "POST"), headers.pop("path", "/mcp")
        try:
            found = [str(fault), await self.http.ask(method, path, headers, line if method in ("POST", "PUT") else b"")]
            if what in ("cancelled", "listen") or method == "GET" and "event-stream" in found[1]:
                if method == "POST" and "event-stream" in found[1]:
                    found += events(await self.http.piece())[:1]
                self.http.close()
            elif method == "HEAD" or " 204" in found[1][:13]:
                pass
            else:
                body = await self.http.body()
                found += events(body) if "event-stream" in found[1] else [body.decode()]
        except (OSError, asyncio.IncompleteReadError, ValueError) as error:
            self.http.close()
            found = [f"no answer: {type(error).__name__}"]
        if method == "DELETE":
            await self.open(self.build)
        return self.comparable(found)


class Sse(Pipe):
    """A client over HTTP+SSE: what it sends is posted, and what it gets comes on its stream."""

    async def open(self, build):
        self.stream, self.http, self.events = Http(build.port), Http(build.port), []
        await self.stream.ask("GET", "/sse", {"Host": "localhost", "Accept": "text/event-stream"})
        self.path = await self.receive()
        for line in handshake(self.revision) if self.revision not in (None, MODERN) else []:
            await self.exchange("", line)

    async def close(self):
        self.stream.close()
        self.http.close()
        return 0

    async def send(self, line):
        head = await self.http.ask("POST", self.path, {"Host": "localhost", "Content-Type": "application/json"}, line)
        return head + " " + (await self.http.body()).decode()

    async def receive(self):
        while not self.events:
            self.events += [event for event in events(await self.stream.piece()) if not event.startswith("event: ")]
        return self.events.pop(0)


CLIENTS = {"stdio": Pipe, "http": Streamable, "sse": Sse}


class Build:
    """A program, and what it needs to run."""

    def __init__(self, program, transport, flags, fabric, folder):
        self.command = [program, "--transport", transport, "--port", "0", *flags]
        self.environment = {"HOME": folder, "FABRIC_BASE_URL": fabric}
        self.log = tempfile.TemporaryFile()
        self.process, self.port = None, None

    async def start(self):
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(*self.command, env=self.environment, stdin=pipe, stdout=pipe,
                                                    stderr=self.log, limit=64 * MIB)

    async def listen(self):
        self.process = await self.start()
        for _ in range(DEADLINE * 100):
            if port := re.search(rb"transport at http://127.0.0.1:(\d+)", self.logged()):
                self.port = int(port[1])
                return
            await asyncio.sleep(0.01)
        raise Gone(self.logged().decode())

    async def end(self):
        self.process.send_signal(signal.SIGTERM)
        return await asyncio.wait_for(self.process.wait(), DEADLINE)

    def logged(self):
        return os.pread(self.log.fileno(), 1 << 24, 0)


# What is compared, and what is told.

class Report:
    def __init__(self, explained):
        self.explained, self.count, self.repeated = explained, 0, 0
        self.reasons, self.groups, self.failures = collections.Counter(), collections.defaultdict(list), []

    def compare(self, transport, what, sent, before, now):
        self.count += 1
        if before == now:
            return
        values = [[parsed(text) for text in found] for found in (before, now)]
        for place, one, two in list(differences(*values)) or [("bytes", before, now)]:
            told = f"{transport} {what} {place}: {short(one)} -> {short(two)}"
            reason = next((reason for pattern, reason in self.explained if pattern.search(told)), None)
            if reason is None:
                group = re.sub(r"\d+", "#", f"{transport} {place}: {short(one)[:60]} -> {short(two)[:60]}")
                self.groups[group].append((told, sent))
            else:
                self.reasons[reason] += 1

    def tell(self):
        for reason, count in self.reasons.most_common():
            print(f"{count:6}  explained: {reason}")
        for told in sorted(self.groups.values(), key=len, reverse=True):
            kinds = collections.Counter(one.split()[1] for one, _ in told)
            print(f"{len(told):6}  {told[0][0]}\n        in {dict(kinds.most_common(5))}, such as {str(told[0][1])[:300]}")
        for failure in self.failures:
            print(f"FAILED  {failure}")
        print(f"{self.count} compared, {sum(self.reasons.values())} differences explained, "
              f"{sum(map(len, self.groups.values()))} not, of {len(self.groups)} kinds; {len(self.failures)} failures, "
              f"{self.repeated} messages sent twice")
        return 1 if self.groups or self.failures else 0


def short(value):
    return value[:400] if isinstance(value, str) else json.dumps(value, ensure_ascii=False)[:400]


def differences(one, two, place=""):
    """The places where two values differ, and what is there."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted({*one, *two}):
            yield from differences(one.get(key, NOTHING), two.get(key, NOTHING), f"{place}.{key}")
        if one == two and list(one) != list(two):
            yield f"{place} order", list(one), list(two)
    elif isinstance(one, list) and isinstance(two, list):
        for at, pair in enumerate(itertools.zip_longest(one, two, fillvalue=NOTHING)):
            yield from differences(*pair, f"{place}[{at}]")
    elif isinstance(one, str) and isinstance(two, str) and one != two:
        if isinstance(inner := parsed(one), dict) and isinstance(other := parsed(two), dict):
            yield from differences(inner, other, f"{place}(JSON)")
        else:
            start = max(0, len(os.path.commonprefix([one, two])) - 40)
            yield place, one[start:], two[start:]
    elif one != two:
        yield place, one, two


# How the Fabric fails, flags, and how many clients in each revision.
PHASES = [("reset", [], 1), ("cut", [], 1), ("500", [], 1), ("401", [], 1), ("garbage", [], 1), ("null", [], 1), ("odd", [], 1),
          ("429", [], 1), ("ok", ["--read-only"], 1), ("ok", ["--keep-runs", "0"], 1), ("ok", [], 8),
          ("ok", ["--strip-thinking", "--allow-model", "m1", "--default-model", "m1"], 1),
          ("ok", ["--tool", "fabric_run_pattern", "--prompt", "none"], 1)]
# Clients at once.
AT_ONCE = 24


async def client(report, transport, builds, revision, seed, count):
    author, clients = Author(seed, revision), [CLIENTS[transport](revision) for _ in builds]
    await asyncio.gather(*(one.open(build) for one, build in zip(clients, builds)))
    while count > 0:
        for what, line in author.steps():
            count -= 1
            # If something has happened in another order by chance, what counts happens again.
            for is_second in False, True:
                found = await asyncio.gather(*(asyncio.wait_for(one.exchange(what, line), DEADLINE) for one in clients), return_exceptions=True)
                for program, error in zip(("BEFORE", "NOW"), found):
                    if isinstance(error, BaseException):
                        report.failures.append(f"{program} on {transport}, {revision}: {error!r} at {what} {line[:300]!r}")
                if any(isinstance(one, BaseException) for one in found):
                    return
                report.repeated += is_second
                if found[0] == found[1]:
                    break
            report.compare(transport, what, line, *found)
    codes = await asyncio.gather(*(one.close() for one in clients))
    report.compare(transport, "end", b"", *([f"exit code {code}"] for code in codes))


async def messages(report, arguments, transport, address, folder):
    programs = arguments.before, arguments.now
    phases = [[Build(program, transport, flags, f"{address}/{how}", folder) for program in programs] for how, flags, _ in PHASES]
    servers = [build for builds in phases for build in builds] if transport != "stdio" else []
    await asyncio.gather(*(build.listen() for build in servers))
    lanes = [(builds, revision, f"{arguments.seed} {flags} {how} {copy} {revision}")
             for builds, (how, flags, copies) in zip(phases, PHASES) for copy in range(copies) for revision in [None, *REVISIONS]]
    at_once = asyncio.Semaphore(AT_ONCE)

    async def one(builds, revision, seed):
        async with at_once:
            await client(report, transport, builds, revision, seed, arguments.messages / len(lanes))

    await asyncio.gather(*(one(*lane) for lane in lanes))
    for build in servers:
        report.compare(transport, "end", b"", ["exit code 0"], [f"exit code {await build.end()}"])
    for log in (builds[1].logged() for builds in phases):
        if b"panicked" in log:
            report.failures.append(log[log.index(b"panicked") :][:500].decode("utf-8", "replace"))


WORDS = ["", "0", "1", "-1", "1.5", "9" * 20, "abc", "é漢", "a,b", "a=b", "/nope", "http://127.0.0.1:1", "https://h/x?y", "127.0.0.1",
         "*", "{", "{}", "true", "stdio", "summarize", "fabric_list_models", "claude-desktop", "cursor", "man", "skills", "--"]
CALLS = ["", "{}", "{", "[]", "null", '{"pattern_name":"summarize"}', '{"pattern_name":"summarize","input_text":"x"}',
         '{"pattern_name":"error","input_text":"x"}', '{"query":"cook"}', '{"nope":1}', "query=cook", "pattern_name=summarize"]


def command_lines(program, choice, count):
    """Arguments and variables: each topic, kind and tool that the program names, and random ones."""
    told = subprocess.run([program, "--help"], check=True, capture_output=True, text=True).stdout
    flags = re.findall(r"^  (?:-\w, )?(--[\w-]+)(?:, --[\w-]+)?(?: ([A-Z]+))?", told, re.M)
    variables = [name for name in re.findall(r"\[?\b(FABRIC_\w+)", told) if name != "FABRIC_MCP_TRANSPORT"]
    for topic in re.findall(r"[a-z]+", told[told.rindex("More:") :]):
        yield ["--help", topic], {}
    for kind in re.findall(r"[a-z-]+", re.search(r"--generate WHAT\n(.*?)\n  --", told, re.S)[1]):
        for more in [], ["x"], ["claude-desktop"], ["x", "run"], ["out", "summarize"]:
            yield ["--generate", kind, *more], {}
    for tool in TOOLS:
        for call in CALLS:
            yield ["--call", tool, call] + choice.choice([[], ["--json"], ["--demo"]]), {}
    for flag in ["--install", "--uninstall"]:
        yield [flag, "cursor", "--yes"], {}
    for line in [], ["--check"], ["--list-tools"], ["--list-tools", "--json"], ["-h"], ["-V"], ["--check", "--json", "--demo"], ["-x"]:
        yield line, {}
    for _ in range(count):
        line = []
        for _ in range(choice.randrange(1, 5)):
            flag, takes = choice.choice(flags)
            if choice.random() < 0.1:
                at = choice.randrange(2, len(flag))
                flag = flag[:at] + flag[at + 1 :]
            word = [choice.choice(WORDS)] if (choice.random() < 0.9) == bool(takes) else []
            line += [f"{flag}={word[0]}"] if word and choice.random() < 0.2 else [flag, *word]
        yield line, {choice.choice(variables): choice.choice(WORDS)} if choice.random() < 0.3 else {}


async def run_line(program, line, variables, address):
    """The exit code, outputs and files of a command line."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {"HOME": folder, "PATH": "/nonexistent", "FABRIC_BASE_URL": address} | variables
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(program, *line, cwd=folder, env=environment, stdout=pipe, stderr=pipe,
                                                       stdin=asyncio.subprocess.DEVNULL)
        outputs = await asyncio.wait_for(process.communicate(), DEADLINE)
        files = [b"%s: %s" % (os.fsencode(file), file.read_bytes()) for file in sorted(pathlib.Path(folder).rglob("*")) if file.is_file()]
        texts = [f"exit code {process.returncode}", *(text.decode("utf-8", "replace") for text in [*outputs, *files])]
        texts = [text.replace(folder, "<home>").replace(program, "<program>") for text in texts]
        return Client(None).comparable([re.sub(r"[A-Za-z0-9_-]{40,}", "<secret>", text) for text in texts])


async def lines(report, arguments, transport, address, _):
    at_once = asyncio.Semaphore(4)

    async def one(line, variables):
        async with at_once:
            found = await asyncio.gather(*(run_line(program, line, variables, address + "/ok")
                                           for program in (arguments.before, arguments.now)), return_exceptions=True)
        for program, error in zip(("BEFORE", "NOW"), found):
            if isinstance(error, BaseException):
                report.failures.append(f"{program}: {error!r} at {line} {variables}")
        if not any(isinstance(error, BaseException) for error in found):
            report.compare(transport, next(iter(line), "nothing"), (line, variables), *found)

    some = command_lines(arguments.before, random.Random(arguments.seed), arguments.messages // 40)
    await asyncio.gather(*(one(*line) for line in some))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("now")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="stdio,http,sse,cli")
    parser.add_argument("--explained", type=pathlib.Path)
    arguments = parser.parse_args()
    arguments.before, arguments.now = map(os.path.abspath, (arguments.before, arguments.now))
    reasons = arguments.explained.read_text().splitlines() if arguments.explained else []
    listed = subprocess.run([arguments.now, "--list-tools"], capture_output=True, text=True, check=True).stdout
    new = [line for line in listed.splitlines() if line.startswith("fabric_") and line not in TOOLS]
    if new:
        sys.exit(f"{__file__}: TOOLS lacks {', '.join(new)}")
    report = Report([(re.compile(pattern), reason) for pattern, reason in (line.split("\t") for line in reasons if line)])
    table = pathlib.Path(__file__).parents[2] / "src/search/patterns.tsv"
    known = PATTERNS + [line.split("\t")[0] for line in table.read_text().splitlines()]
    listener = socket.create_server(("127.0.0.1", 0), backlog=512)
    multiprocessing.Process(target=fabric, args=(listener, known), daemon=True).start()
    address = "http://127.0.0.1:%d" % listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        for transport in arguments.only.split(","):
            start = time.monotonic()
            try:
                asyncio.run((lines if transport == "cli" else messages)(report, arguments, transport, address, folder))
            except KeyboardInterrupt:
                pass
            print(f"{transport}: {report.count} compared so far, in {time.monotonic() - start:.0f} s", file=sys.stderr)
    return report.tell()


if __name__ == "__main__":
    sys.exit(main())
