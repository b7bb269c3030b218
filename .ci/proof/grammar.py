#!/usr/bin/env python3
"""Random messages made from the schemas of MCP: is each answered once, and is each answer valid?

    .ci/proof/grammar.py PROGRAM SCHEMAS [--messages 5000] [--seed 1] [--only stdio,http,sse]

SCHEMAS is a folder with the JSON schema of each revision, such as 2025-06-18.json; Python needs jsonschema. Requests of
each revision are made from its schema, go to PROGRAM over each transport, and are mixed with those of differential.py;
some have a random value at a random place. The Fabric is that of differential.py. It exits with 1 if a request is not
answered exactly once, if an answer or a notification is not what the schema of the revision says, or if PROGRAM panics.
"""

import argparse
import asyncio
import collections
import copy
import json
import multiprocessing
import os
import pathlib
import random
import socket
import sys
import tempfile

import jsonschema

import differential
from differential import CLIENTS, MODERN, ODD, REVISIONS, Author, Build, encoded, id_of, parsed

RESULTS = {
    "initialize": "InitializeResult", "ping": "EmptyResult", "tools/list": "ListToolsResult", "tools/call": "CallToolResult",
    "prompts/list": "ListPromptsResult", "prompts/get": "GetPromptResult", "resources/list": "ListResourcesResult",
    "resources/templates/list": "ListResourceTemplatesResult", "resources/read": "ReadResourceResult",
    "resources/subscribe": "EmptyResult", "resources/unsubscribe": "EmptyResult", "completion/complete": "CompleteResult",
    "logging/setLevel": "EmptyResult", "server/discover": "DiscoverResult", "tasks/get": "GetTaskResult",
    "tasks/cancel": "CancelTaskResult", "tasks/list": "ListTasksResult", "tasks/result": "GetTaskPayloadResult",
    "subscriptions/listen": "SubscriptionsListenResult",
}


class Schema:
    """The schema of a revision: makes requests, and checks what comes back."""

    def __init__(self, folder, revision):
        self.root = json.loads((folder / f"{revision}.json").read_text())
        self.place = "$defs" if "$defs" in self.root else "definitions"
        self.of, self.checks = self.root[self.place], {}
        # A task's answer takes the place of the result.
        self.task = "CreateTaskResult" if "CreateTaskResult" in self.of else None

    def faults(self, value, *names):
        """What is wrong with a value that should be one of these."""
        # Methods that a revision does not have, such as those of tasks, are answered all the same.
        names = tuple(name for name in names if name in self.of) or ("Result",)
        if names not in self.checks:
            ways = [{"$ref": f"#/{self.place}/{name}"} for name in names]
            whole = {"$schema": self.root["$schema"], self.place: self.of, "anyOf": ways}
            self.checks[names] = jsonschema.validators.validator_for(whole)(whole)
        error = jsonschema.exceptions.best_match(self.checks[names].iter_errors(value))
        return error and f"{names} at {error.json_path}: {error.message[:300]}"

    def make(self, choice, schema, depth=0):
        """A value as the schema wants it, most of the time."""
        if "$ref" in schema:
            return self.make(choice, self.of[schema["$ref"].split("/")[-1]], depth + 1)
        for word in ("anyOf", "oneOf"):
            if word in schema:
                return self.make(choice, choice.choice(schema[word]), depth + 1)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return choice.choice(schema["enum"])
        kind = schema.get("type", choice.choice(["string", "object", "null"]))
        match choice.choice(kind) if isinstance(kind, list) else kind:
            case "object":
                some = 0.4 / (1 + depth)
                value = {name: self.make(choice, one, depth + 1) for name, one in schema.get("properties", {}).items()
                         if name in schema.get("required", []) or choice.random() < some}
                if schema.get("additionalProperties", True) and choice.random() < some:
                    value[choice.choice(["x", "", "é", "name"])] = choice.choice(ODD)
                return value
            case "array":
                return [self.make(choice, schema.get("items", {}), depth + 1) for _ in range(choice.choice([0, 1, 1, 3]))]
            case "string":
                return choice.choice(["", "summarize", "x", "é漢😀", "2025-06-18", "MA==", "fabric_run_pattern", "fabric_list_models",
                                      "fabric://pattern/summarize", "@run@", "pattern_name", "https://a.b/c"])
            case "boolean":
                return choice.random() < 0.5
            case "null":
                return None
        return choice.choice([0, 1, -1, 7, 2**53, 1.5])


def places(value, path=()):
    yield path
    for key, one in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(one, path + (key,))


def spoiled(choice, value):
    """The value with something random at a random place."""
    value = copy.deepcopy(value)
    path = choice.choice(list(places(value)))
    if not path:
        return choice.choice(ODD)
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = choice.choice(ODD)
    return value


def requests(schema, author):
    """The next messages: those of the differential, or one that is made from the schema."""
    choice = author.random
    if choice.random() < 0.4:
        return author.steps()
    kind = schema.of[choice.choice(schema.of["ClientRequest"]["anyOf"])["$ref"].split("/")[-1]]
    value = schema.make(choice, kind)
    if value["method"] == "initialize" and choice.random() < 0.9:
        return []
    author.count += 1
    value |= {"jsonrpc": "2.0", "id": choice.choice([author.count, f"i{author.count}"])}
    if author.revision == MODERN and choice.random() < 0.9:
        meta = author.request("", {})["params"]["_meta"]
        value["params"] = value.get("params", {}) | {"_meta": meta}
    if value["method"] == "subscriptions/listen":
        return [("listen", encoded(value))]
    for _ in range(choice.choice([0, 0, 1, 3])):
        value = spoiled(choice, value)
    return [("made", encoded(value))]


class Report:
    def __init__(self):
        self.faults, self.counts = collections.Counter(), collections.Counter()

    def fault(self, where, fault, line, answer):
        fault = f"{where}: {fault}"
        if not self.faults[fault]:
            print(f"{fault}\n    {line[:300]!r}\n    {str(answer)[:300]}", flush=True)
        self.faults[fault] += 1

    def check(self, where, schema, line, found):
        """Are these the messages that the schema allows after this line, and is there one answer?"""
        sent, answers = parsed(line.decode("utf-8-sig", "replace")), []
        for text in found:
            # Over HTTP+SSE, what is refused is told in the answer to the POST.
            value = parsed(text[text.find("{") :] if text.startswith("http/1.1 4") else text)
            if not isinstance(value, dict | list):
                continue
            for one in value if isinstance(value, list) else [value]:
                if isinstance(one, dict) and "method" in one:
                    self.counts["notifications"] += 1
                    fault = schema.faults(one, "ServerNotification")
                elif isinstance(one, dict) and "error" in one and "jsonrpc" in one:
                    self.counts["errors"] += 1
                    answers.append(one)
                    # Without an id that could be read; older schemas have no such error.
                    held = one | {"id": 0} if one.get("id") is None else one
                    fault = schema.faults(held, "JSONRPCError", "JSONRPCErrorResponse")
                elif isinstance(one, dict) and "result" in one:
                    self.counts["results"] += 1
                    answers.append(one)
                    asked = [m for m in (sent if isinstance(sent, list) else [sent]) if isinstance(m, dict) and m.get("id") == one["id"]]
                    method = asked[-1].get("method") if asked else None
                    names = [RESULTS.get(method, "Result")] + [schema.task] * (method == "tools/call")
                    fault = schema.faults(one, "JSONRPCResponse", "JSONRPCResultResponse") or \
                        schema.faults(one["result"], *(name for name in names if name))
                else:
                    fault = "is no message" if "jsonrpc" in str(one) else None
                if fault:
                    self.fault(where, fault, line, one)
        own = id_of(line)
        if own is not None and not isinstance(sent, list) and [one.get("id") for one in answers] not in ([own], [None]):
            self.fault(where, f"answers for {[one.get('id') for one in answers]}", line, found)


async def client(report, arguments, transport, build, revision, schemas):
    schema = schemas[revision]
    author, one = Author(f"{arguments.seed} {transport} {revision} {build.number}", revision), CLIENTS[transport](revision)
    name = one.comparable
    one.comparable = lambda found: (name(found), found)[1]
    await one.open(build)
    left = arguments.messages / len(REVISIONS) / LANES
    while left > 0:
        for what, line in requests(schema, author):
            left -= 1
            report.counts["sent"] += 1
            try:
                found = await asyncio.wait_for(one.exchange(what, line), 60)
            except (differential.Gone, TimeoutError, ValueError) as error:
                report.fault(f"{transport} {revision}", repr(error), line, "")
                return
            # A client that hangs up, or asks for something else, is not answered.
            faulty = transport == "http" and found[0] != "{}"
            if what not in ("cancelled", "listen") and not faulty:
                # A request that does not say that it is of the newest revision is taken for an older one.
                is_older = revision == MODERN and f'"{MODERN}"'.encode() not in line
                report.check(f"{transport} {revision}", schemas[REVISIONS[-2]] if is_older else schema, line, found)
    await one.close()


LANES = 4


async def run(report, arguments, transport, address, folder, schemas):
    builds = [Build(arguments.program, transport, flags, f"{address}/{how}", folder)
              for how, flags in [("ok", []), ("500", []), ("ok", ["--plain-results"]), ("garbage", ["--read-only"])]]
    for number, build in enumerate(builds):
        build.number = number
        if transport != "stdio":
            await build.listen()
    await asyncio.gather(*(client(report, arguments, transport, build, revision, schemas)
                           for build in builds for revision in REVISIONS))
    for build in builds:
        if transport != "stdio" and (code := await build.end()):
            report.fault(transport, f"exit code {code}", b"", "")
        if b"panicked" in build.logged():
            report.fault(transport, "a panic", b"", build.logged()[-500:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", type=os.path.abspath)
    parser.add_argument("schemas", type=pathlib.Path)
    parser.add_argument("--messages", type=int, default=5000)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--only", default="stdio,http,sse")
    arguments = parser.parse_args()
    schemas = {revision: Schema(arguments.schemas, revision) for revision in REVISIONS}
    report, listener = Report(), socket.create_server(("127.0.0.1", 0), backlog=512)
    table = pathlib.Path(__file__).parents[2] / "src/search/patterns.tsv"
    known = differential.PATTERNS + [line.split("\t")[0] for line in table.read_text().splitlines()]
    multiprocessing.Process(target=differential.fabric, args=(listener, known), daemon=True).start()
    address = "http://127.0.0.1:%d" % listener.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        for transport in arguments.only.split(","):
            asyncio.run(run(report, arguments, transport, address, folder, schemas))
    print(f"{dict(report.counts)}; {report.faults.total()} faults of {len(report.faults)} kinds")
    return 1 if report.faults else 0


if __name__ == "__main__":
    sys.exit(main())
