#!/usr/bin/env python3
"""Chaos over replicas: four processes share one state folder behind nginx and are killed at random moments.

    .ci/proof/chaos.py target/release/fabric-mcp [KILLS]
    .ci/proof/chaos.py target/release/fabric-mcp --soak MINUTES

It needs nginx. Clients of two tokens start runs and chains, cancel some, and read them through nginx; a third token
starts as many as it can. Three processes share a Fabric, the fourth has started its own. A process at a time is ended by
SIGKILL and started again, KILLS times (500). In a soak, two of the processes live to the end; of the others, one is
killed every 10 s, and the shared Fabric every 20 s. How much the first two grow is left for people to judge. Checked are:

  - Fabric got each input at most once: nothing is paid for twice;
  - a run whose id a client was told is found, and begins with the text that client was told; if it is completed,
    with all of its text;
  - nobody finds a run of another token, and nobody is refused because of the third one;
  - --usage has the steps and the tokens that the Fabrics have counted. Of a step that was interrupted, the output is
    estimated from the text that is kept. A step that is in the ledger, but that no Fabric got, has no output;
  - no Fabric is left behind.

The last lines say what was counted. It exits with 1 if anything was wrong.
"""

import collections
import http.client
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

VERSION = "2026-07-28"
CALLERS = ("alice", "bob")
CLIENTS = 8
GREEDY = 4
PIECES = 12
# The runs that a client remembers at most; it checks the oldest when there are more.
REMEMBERED = 400


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def estimated(text):
    """Its tokens, as the ledger estimates them."""
    return -(-len(text) // 4)


def pieces(name):
    return [f"{name} {at}\n" for at in range(PIECES)]


class Fabric(http.server.BaseHTTPRequestHandler):
    """Streams a text made of the input, in pieces. Writes down each input: its name, and its tokens."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, body, status=200):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def has_key(self):
        if self.server.key not in ("", self.headers.get("X-API-Key")):
            self.answer(b'{"error":"Wrong API Key"}', 401)
            return False
        return True

    def do_GET(self):
        names = {"/patterns/names": ["echo"], "/models/names": {"models": [], "vendors": {}},
                 "/patterns/echo": {"Name": "echo", "Description": "", "Pattern": "You say it again."}}
        if self.has_key():
            self.answer(json.dumps(names.get(self.path, [])).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self.has_key():
            return
        text = request["prompts"][0]["userInput"]
        # The input of a chain's second step has lines: the pieces of the first.
        name, read = text.split()[0] + "+" * ("\n" in text), estimated(text)
        os.write(self.server.log, f"{name}\t{read}\n".encode())
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        pause = 1.5 if name.startswith("greedy") else random.choice((0, 0.01, 0.05))
        try:
            for piece in pieces(name):
                self.event({"type": "content", "format": "markdown", "content": piece})
                time.sleep(pause)
            self.event({"type": "usage", "usage": {"input_tokens": read, "output_tokens": 1000 + read}})
            self.event({"type": "complete"})
        except OSError:
            pass

    def event(self, event):
        self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())
        self.wfile.flush()


def serve(address, key, log):
    """Is a Fabric, until it is killed."""
    host, port = address.split(":")
    http.server.ThreadingHTTPServer.request_queue_size = 512
    server = http.server.ThreadingHTTPServer((host, int(port)), Fabric)
    server.key, server.log = key, os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    # A killed process resets its connections.
    server.handle_error = lambda *_: None
    server.serve_forever()


class Replicas:
    """The processes, their Fabrics, and the nginx in front of them, configured as `--help proxy` says."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.ports = [free_port() for _ in range(4)]
        self.tokens = {name: f"{name}-".ljust(40, "0") for name in [*CALLERS, "greedy"]}
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{name} run {token}\n" for name, token in self.tokens.items()))
        tokens.chmod(0o600)
        (folder / "state").mkdir(mode=0o700)
        (folder / ".config/fabric").mkdir(parents=True)
        (folder / ".config/fabric/.env").touch()
        self.log, self.own, at = folder / "log", folder / "fabric", f"127.0.0.1:{free_port()}"
        self.own.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo v1.4.470 || exec {sys.executable} {__file__} "$@" {self.log}\n')
        self.own.chmod(0o700)
        self.serve = [self.own, "--serve", "--address", at, "--api-key", ""]
        self.fabric = subprocess.Popen(self.serve)
        self.environment = os.environ | {"FABRIC_BASE_URL": f"http://{at}", "HOME": str(folder)}
        self.processes = [self.start(at) for at in range(len(self.ports))]
        self.port = free_port()
        self.nginx = self.start_nginx()

    def start(self, at):
        command = [self.program, "--transport", "http", "--port", str(self.ports[at]), "--allowed-host", "mcp.example.com",
                   "--trusted-proxy", "127.0.0.1", "--tokens-file", self.folder / "tokens", "--max-runs", "96",
                   "--state-dir", self.folder / "state", "--log-level", "critical"]
        return subprocess.Popen(command + [f"--start-fabric={self.own}"] * (at == 3), env=self.environment)

    def start_nginx(self):
        text = subprocess.run([self.program, "--help", "proxy"], check=True, capture_output=True, text=True).stdout
        lines = "".join(re.findall(r"^    (?:server|upstream|map) .*?^    }\n", text, re.S | re.M))
        lines = re.sub(r".*ssl_certificate.*\n", "", lines).replace("443 ssl", f"127.0.0.1:{self.port}")
        lines = lines.replace("http://127.0.0.1:8000", "http://fabric_mcp")
        lines = re.sub(r"( *server 127.0.0.1:800)2(.*\n)", r"\g<0>\g<1>3\g<2>\g<1>4\g<2>", lines)
        for at, port in enumerate(self.ports):
            lines = lines.replace(f"127.0.0.1:800{at + 1}", f"127.0.0.1:{port}")
        conf = self.folder / "nginx.conf"
        conf.write_text(f"daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log;\n"
                        f"events {{}} http {{ access_log off;\n{lines}}}\n")
        return subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-e", "stderr", "-c", conf],
                                stderr=subprocess.DEVNULL)

    def kill_one(self, among):
        at = random.choice(among)
        self.processes[at].send_signal(signal.SIGKILL)
        self.processes[at].wait()
        self.processes[at] = self.start(at)

    def restart_fabric(self):
        self.fabric.kill()
        self.fabric.wait()
        self.fabric = subprocess.Popen(self.serve)

    def call(self, caller, tool, **arguments):
        """The result of a call through nginx, or nothing if it did not arrive."""
        meta = {"io.modelcontextprotocol/protocolVersion": VERSION, "io.modelcontextprotocol/clientCapabilities": {}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                "params": {"name": tool, "arguments": arguments, "_meta": meta}}
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream",
                   "Authorization": f"Bearer {self.tokens[caller]}", "Host": "mcp.example.com",
                   "MCP-Protocol-Version": VERSION, "Mcp-Method": "tools/call", "Mcp-Name": tool}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/mcp", json.dumps(body), headers)
            text = connection.getresponse().read().decode()
            messages = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("{", "data: {"))]
            return json.loads(messages[-1]).get("result") or {} if messages else {}
        except (OSError, http.client.HTTPException, ValueError):
            return {}
        finally:
            connection.close()

    def read(self, caller, run):
        """The result of fabric_get_run, as soon as there is one."""
        for _ in range(100):
            if result := self.call(caller, "fabric_get_run", run_id=run, wait_seconds=5):
                return result
            time.sleep(0.1)
        return {}

    def usage(self):
        command = [self.program, "--state-dir", self.folder / "state", "--usage", "2000-01-01..", "--json"]
        rows = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["usage"]
        return [sum(row[name] for row in rows) for name in ("runs", "steps", "input_tokens", "output_tokens")]

    def end(self):
        for process in [self.nginx, *self.processes, self.fabric]:
            process.terminate()
            process.wait()

    def left_behind(self):
        lines = [path.read_bytes().split(b"\0") for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")]
        return [line for line in lines if os.fsencode(self.log) in line]


class Client(threading.Thread):
    """Starts runs, one after another, and remembers what it was told."""

    def __init__(self, replicas, name, number, over):
        super().__init__()
        self.replicas, self.caller, self.number, self.over = replicas, name, number, over
        # The run's id: the name of its input, whether it is a chain, and the longest text that was told.
        self.told, self.cancelled = {}, set()
        self.ended, self.wrong, self.refused = collections.Counter(), [], collections.Counter()
        # By the run's id: the estimate of the output of a run that was interrupted.
        self.interrupted = {}

    def run(self):
        count, is_greedy = 0, self.caller == "greedy"
        while not self.over.is_set():
            name, count, then = f"{self.caller}{self.number}-{count}", count + 1, {}
            if random.random() < 0.25 and not is_greedy:
                then = {"then": [{"pattern_name": "echo"}]}
            # The input tokens tell the steps apart.
            text = f"{name} ".ljust(4 * (100 + (8 * count + self.number) % 4000), ".")
            result = self.replicas.call(self.caller, "fabric_run_pattern", pattern_name="echo", input_text=text,
                                        wait_seconds=0 if is_greedy else random.choice((0, 0, 1)), **then)
            content = result.get("structuredContent") or {}
            time.sleep(0.02 if is_greedy else random.uniform(0, 0.3))
            if result.get("isError"):
                kind = result["_meta"]["error"]["type"].rsplit(":")[-1]
                self.refused[kind] += 1
                # It has a run at a time, so all clients of a token have less than its seat.
                if kind == "too-many-requests" and not is_greedy:
                    self.wrong.append(f"{self.caller} was refused: {result['_meta']['error']['detail']}")
            elif (run := content.get("run_id")) and not is_greedy:
                self.told[run] = (name, bool(then), content.get("output_text", ""))
                self.look(run)
            if len(self.told) > REMEMBERED:
                self.judge(next(iter(self.told)))

    def look(self, run):
        name, is_chain, before = self.told[run]
        if random.random() < 0.1:
            self.cancelled.add(run)
            self.replicas.call(self.caller, "fabric_cancel_run", run_id=run)
        result = self.replicas.call(self.caller, "fabric_get_run", run_id=run, wait_seconds=0)
        text = (result.get("structuredContent") or {}).get("output_text", "")
        if len(text) > len(before):
            self.told[run] = (name, is_chain, text)
        for _ in range(20):
            if (self.replicas.read(self.caller, run).get("structuredContent") or {}).get("status") != "working":
                break

    def judge(self, run):
        """Is a run whose end it does not know what it ought to be?"""
        name, is_chain, told = self.told.pop(run)
        result = self.replicas.read(self.caller, run)
        content = result.get("structuredContent") or {}
        text, status = content.get("output_text", ""), content.get("status", "not found")
        self.ended[status] += 1
        wholes = ["".join(pieces(one)) for one in ([name, name + "+"] if is_chain else [name])]
        ends = ["completed", "interrupted"] + ["failed"] * FABRIC_FAILS + ["cancelled"] * (run in self.cancelled)
        if status not in ends or not is_chain and not text.startswith(told):
            self.wrong.append(f"{run}: {status}, told {len(told)} characters, kept {len(text)}: {result}")
        elif status == "completed" and text != wholes[-1] or not any(whole.startswith(text) for whole in wholes):
            self.wrong.append(f"{run}: {status} with another text: {text!r}")
        elif status == "interrupted" and not is_chain:
            self.interrupted[run] = estimated(text)


FABRIC_FAILS = "--soak" in sys.argv


def wrong_ledger(replicas, interrupted):
    """What is wrong with the ledger, and what it says."""
    usage, wrong = replicas.usage(), []
    lines = {}
    for file in (replicas.folder / "state").glob("usage-*.tsv"):
        for line in file.read_text().splitlines():
            _, _, _, _, read, written, outcome, run, step = line.split("\t")
            lines.setdefault((run, step), (int(read.strip("~")), int(written.strip("~")), "~" in read, outcome))
    sums = [sum(step == "1" for _, step in lines), len(lines), *(sum(line[at] for line in lines.values()) for at in range(2))]
    if sums != usage:
        wrong.append(f"--usage says {usage}, and the ledger {sums}")
    inputs = [line.split("\t") for line in replicas.log.read_text().splitlines()]
    wrong += [f"{name} came to Fabric {count} times"
              for name, count in collections.Counter(name for name, _ in inputs).items() if count > 1]
    asked = collections.Counter(int(read) for _, read in inputs)
    # What no Fabric listened to has cost nothing.
    refused = [line for line in lines.values() if line[:3] == (0, 0, False)]
    told = collections.Counter(line[0] for line in lines.values()) - collections.Counter(line[0] for line in refused)
    if lost := asked - told:
        wrong.append(f"Fabric got {lost.total()} steps that are not in the ledger, of so many tokens: {lost}")
    unasked = told - asked
    without = collections.Counter(line[0] for line in lines.values() if line[1:3] == (0, True))
    if more := unasked - without:
        wrong.append(f"the ledger has {more.total()} steps that no Fabric got, with output: {more}")
    for (run, step), (read, written, is_estimate, outcome) in lines.items():
        is_refused = (read, written, outcome) == (0, 0, "fabric-api-unavailable")
        if not is_estimate and written != 1000 + read and not is_refused or is_estimate and outcome == "ok":
            wrong.append(f"{run}, step {step}: {outcome}, {read} and {written} tokens, estimated: {is_estimate}")
    for run, written in interrupted.items():
        # Without a line, no model was asked; with counted tokens, it was killed after its end.
        if (line := lines.get((run, "1"))) and line[2] and line[1] != written:
            wrong.append(f"{run}: {written} tokens are kept, and the ledger has {line}")
    exact = sum(not line[2] for line in lines.values())
    outcomes = dict(collections.Counter(line[3] for line in lines.values()))
    return wrong, (f"Fabric got {len(inputs)} steps with {sum(int(read) for _, read in inputs)} tokens; --usage has {usage[0]} runs of {usage[1]} steps, "
                   f"{exact} of them with counted tokens, with {usage[2]} tokens read and {usage[3]} written: {outcomes}; "
                   f"{unasked.total()} of them never reached Fabric, with {sum(read * n for read, n in unasked.items())} tokens, "
                   f"and {len(refused)} found none, with 0")


def grown(processes):
    """Memory in MB, threads and open files of each process."""
    told = []
    for process in processes:
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
        memory, threads = (int(re.search(rf"{what}:\s+(\d+)", status)[1]) for what in ("VmRSS", "Threads"))
        told.append(f"{memory / 1024:.1f} MB, {threads} threads, {len(os.listdir(f'/proc/{process.pid}/fd'))} files")
    return " · ".join(told)


def soak(replicas, clients, seconds):
    begun, number = time.monotonic(), 0
    while (passed := time.monotonic() - begun) < seconds:
        time.sleep(10)
        number += 1
        replicas.kill_one([2, 3])
        if number % 2 == 0:
            replicas.restart_fabric()
        if number % 6 == 0:
            print(f"{passed:5.0f} s  {grown(replicas.processes[:2])}, {sum(len(client.wrong) for client in clients)} wrong", flush=True)
    return number


def chaos(replicas, kills):
    for _ in range(kills):
        time.sleep(random.uniform(0, 0.4))
        replicas.kill_one(range(4))
    return kills


def main():
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        replicas = Replicas(program, pathlib.Path(folder))
        while not replicas.call("alice", "fabric_list_patterns"):
            time.sleep(0.05)
        over = threading.Event()
        greedy = [Client(replicas, "greedy", number, over) for number in range(GREEDY)]
        clients = [Client(replicas, CALLERS[number % 2], number, over) for number in range(CLIENTS)]
        for client in clients + greedy:
            client.start()
        if FABRIC_FAILS:
            kills = soak(replicas, clients, 60 * float(sys.argv[3]))
        else:
            kills = chaos(replicas, int(sys.argv[2]) if len(sys.argv) > 2 else 500)
        over.set()
        for client in clients + greedy:
            client.join()
        # Longer than any run takes.
        time.sleep(PIECES * 1.5 + 5)
        wrong, interrupted = [], {}
        for client in clients:
            for run in list(client.told)[:20]:
                other = CALLERS[1 - CALLERS.index(client.caller)]
                if not replicas.read(other, run).get("isError"):
                    wrong.append(f"{run} of {client.caller} is shown to {other}")
            for run in list(client.told):
                client.judge(run)
            wrong += client.wrong
            interrupted |= client.interrupted
        replicas.end()
        faults, told = wrong_ledger(replicas, interrupted)
        wrong += faults + [f"left behind: {line}" for line in replicas.left_behind()]
    ended = sum((client.ended for client in clients), collections.Counter())
    refused = [dict(sum((client.refused for client in some), collections.Counter())) for some in (clients, greedy)]
    print("\n".join(line[:600] for line in wrong))
    print(f"{kills} kills, {ended.total()} runs told: {dict(ended)}; errors {refused[0]}, of the third token {refused[1]}")
    print(f"{told}; {len(wrong)} wrong")
    return 1 if wrong or not ended else 0


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(sys.argv[3], sys.argv[5], sys.argv[6])
    sys.exit(main())
