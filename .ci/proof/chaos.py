#!/usr/bin/env python3
"""Chaos over replicas: three processes share one state folder behind nginx and are killed at random moments.

    .ci/proof/chaos.py target/release/fabric-mcp [KILLS]

It needs nginx. Clients of two tokens start runs and read them through nginx, while a process at a time is ended by
SIGKILL and started again, KILLS times (500). Then each answer is checked:

  - Fabric got each input at most once: nothing is paid for twice;
  - a run whose id a client was told is found, and begins with the text that client was told; if it is completed,
    with all of its text;
  - nobody finds a run of the other token.

The last line says what was counted. It exits with 1 if anything was wrong.
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
PIECES = 12


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Fabric(http.server.BaseHTTPRequestHandler):
    """Streams a text made of the input, in pieces, and counts how often each input came."""

    protocol_version = "HTTP/1.1"
    came = collections.Counter()

    def log_message(self, *_):
        pass

    def answer(self, body, kind="application/json"):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        names = {"/patterns/names": ["echo"], "/models/names": {"models": [], "vendors": {}}}
        self.answer(json.dumps(names.get(self.path, [])).encode())

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        word = request["prompts"][0]["userInput"]
        self.came[word] += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        pause = random.choice((0, 0.01, 0.05))
        try:
            for piece in pieces(word):
                self.event({"type": "content", "format": "markdown", "content": piece})
                time.sleep(pause)
            self.event({"type": "complete"})
        except OSError:
            pass

    def event(self, event):
        self.wfile.write(b"data: %s\n\n" % json.dumps(event).encode())
        self.wfile.flush()


def pieces(word):
    return [f"{word} {at}\n" for at in range(PIECES)]


class Replicas:
    """The processes and the nginx in front of them, configured as `--help proxy` says."""

    def __init__(self, program, folder, fabric):
        self.program, self.folder = program, folder
        self.ports = [free_port() for _ in range(3)]
        self.tokens = {name: f"{name}-".ljust(40, "0") for name in CALLERS}
        tokens = folder / "tokens"
        tokens.write_text("".join(f"{name} run {token}\n" for name, token in self.tokens.items()))
        tokens.chmod(0o600)
        (folder / "state").mkdir(mode=0o700)
        self.environment = os.environ | {"FABRIC_BASE_URL": f"http://127.0.0.1:{fabric}"}
        self.processes = [self.start(port) for port in self.ports]
        self.port = free_port()
        self.nginx = self.start_nginx()

    def start(self, port):
        command = [self.program, "--transport", "http", "--port", str(port), "--allowed-host", "mcp.example.com",
                   "--trusted-proxy", "127.0.0.1", "--tokens-file", self.folder / "tokens",
                   "--state-dir", self.folder / "state", "--log-level", "error"]
        return subprocess.Popen(command, env=self.environment)

    def start_nginx(self):
        text = subprocess.run([self.program, "--help", "proxy"], check=True, capture_output=True, text=True).stdout
        lines = "".join(re.findall(r"^    (?:server|upstream|map) .*?^    }\n", text, re.S | re.M))
        lines = re.sub(r".*ssl_certificate.*\n", "", lines).replace("443 ssl", f"127.0.0.1:{self.port}")
        lines = lines.replace("http://127.0.0.1:8000", "http://fabric_mcp")
        lines = re.sub(r"( *server 127.0.0.1:800)2(.*\n)", r"\g<0>\g<1>3\g<2>", lines)
        for at, port in enumerate(self.ports):
            lines = lines.replace(f"127.0.0.1:800{at + 1}", f"127.0.0.1:{port}")
        conf = self.folder / "nginx.conf"
        conf.write_text(f"daemon off; pid {self.folder}/pid; error_log {self.folder}/error.log;\n"
                        f"events {{}} http {{ access_log off;\n{lines}}}\n")
        return subprocess.Popen([shutil.which("nginx") or "/usr/sbin/nginx", "-e", "stderr", "-c", conf],
                                stderr=subprocess.DEVNULL)

    def kill_one(self):
        at = random.randrange(len(self.processes))
        self.processes[at].send_signal(signal.SIGKILL)
        self.processes[at].wait()
        self.processes[at] = self.start(self.ports[at])

    def call(self, caller, tool, **arguments):
        """The result of a call through nginx, or None if it did not arrive."""
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
            return json.loads(messages[-1]).get("result") if messages else None
        except (OSError, http.client.HTTPException, ValueError):
            return None
        finally:
            connection.close()

    def read(self, caller, run):
        """The result of fabric_get_run, as soon as there is one."""
        for _ in range(100):
            if result := self.call(caller, "fabric_get_run", run_id=run, wait_seconds=5):
                return result
            time.sleep(0.1)
        return {}

    def end(self):
        for process in [self.nginx, *self.processes]:
            process.terminate()
            process.wait()


class Client(threading.Thread):
    """Starts runs, one after another, and remembers what it was told."""

    def __init__(self, replicas, number, over):
        super().__init__()
        self.replicas, self.number, self.over = replicas, number, over
        self.caller = CALLERS[number % len(CALLERS)]
        # The run's id: the word that was its input, and the longest text that was told.
        self.told = {}

    def run(self):
        count = 0
        while not self.over.is_set():
            word, count = f"w{self.number}-{count}", count + 1
            result = self.replicas.call(self.caller, "fabric_run_pattern", pattern_name="echo", input_text=word,
                                        wait_seconds=random.choice((0, 0, 1)))
            content = (result or {}).get("structuredContent") or {}
            # No more runs in all than are kept for a caller.
            time.sleep(random.uniform(0, 0.3))
            if run := content.get("run_id"):
                self.told[run] = (word, content.get("output_text", ""))
                self.look(run)

    def look(self, run):
        word, before = self.told[run]
        result = self.replicas.call(self.caller, "fabric_get_run", run_id=run, wait_seconds=0) or {}
        text = (result.get("structuredContent") or {}).get("output_text", "")
        if len(text) > len(before):
            self.told[run] = (word, text)


def wrong_answers(replicas, clients):
    """What is wrong with the runs, once nothing works any more, and how many ended in which way."""
    ended, wrong = collections.Counter(), []
    for client in clients:
        for run, (word, told) in client.told.items():
            result = replicas.read(client.caller, run)
            content = result.get("structuredContent") or {}
            text, status = content.get("output_text", ""), content.get("status", "not found")
            ended[status] += 1
            whole = "".join(pieces(word))
            if status not in ("completed", "interrupted") or not text.startswith(told):
                wrong.append(f"{run}: {status}, told {len(told)} characters, kept {len(text)}: {result}")
            elif status == "completed" and text != whole or not whole.startswith(text):
                wrong.append(f"{run}: {status} with another text: {text!r}")
        other = CALLERS[1 - CALLERS.index(client.caller)]
        for run in list(client.told)[:20]:
            if not replicas.read(other, run).get("isError"):
                wrong.append(f"{run} of {client.caller} is shown to {other}")
    wrong += [f"{word} came to Fabric {count} times" for word, count in Fabric.came.items() if count > 1]
    return ended, wrong


def main():
    program = os.path.abspath(sys.argv[1])
    kills = int(sys.argv[2]) if len(sys.argv) > 2 else 500
    fabric = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fabric)
    fabric.daemon_threads = True
    # A killed process resets its connections.
    fabric.handle_error = lambda *_: None
    threading.Thread(target=fabric.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as folder:
        replicas = Replicas(program, pathlib.Path(folder), fabric.server_address[1])
        while not replicas.call("alice", "fabric_list_patterns"):
            time.sleep(0.05)
        over = threading.Event()
        clients = [Client(replicas, number, over) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        for _ in range(kills):
            time.sleep(random.uniform(0, 0.4))
            replicas.kill_one()
        over.set()
        for client in clients:
            client.join()
        # Longer than any run takes.
        time.sleep(2)
        ended, wrong = wrong_answers(replicas, clients)
        replicas.end()
    print("\n".join(wrong))
    print(f"{kills} kills, {len(Fabric.came)} inputs at Fabric, {sum(ended.values())} runs told: {dict(ended)}, "
          f"{len(wrong)} wrong")
    return 1 if wrong or not ended else 0


if __name__ == "__main__":
    sys.exit(main())
