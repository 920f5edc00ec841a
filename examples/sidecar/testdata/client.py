"""A Python gateway's side: python3 client.py SOCKET CONVERSATIONS TURNS"""

import http.client
import json
import socket
import sys
import threading


class Connection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=30)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Sidecar:
    def __init__(self, path):
        self.connection = Connection(path)

    def post(self, endpoint, **request):
        self.connection.request("POST", endpoint, json.dumps(request), {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        reply = json.load(response)
        if response.status != 200:
            raise RuntimeError(f"{endpoint}: {response.status} {reply}")
        return reply

    def pick(self, body, **more):
        return self.post("/pick", path="/v1/chat/completions", body=body, **more)

    def done(self, lease, **outcome):
        return self.post("/done", lease=lease, **outcome)

    def close(self):
        self.connection.close()


def send(target, body):
    """Returns the status and the text of an engine's reply."""
    engine = http.client.HTTPConnection(target.removeprefix("http://"), timeout=30)
    try:
        engine.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        response = engine.getresponse()
        return response.status, response.read().decode()
    finally:
        engine.close()


def serve(sidecar, body):
    """One request, with failover. Returns the target that served it and the reply."""
    picked = sidecar.pick(body, deadline_ms=60_000)
    while picked:
        try:
            status, text = send(picked["target"], body)
        except OSError as e:
            picked = sidecar.done(picked["lease"], stage="failed", error=str(e), retry=True).get("next")
            continue
        if status == 200:
            sidecar.done(picked["lease"], stage="finished", status=status, reply=text)
            return picked["target"], json.loads(text)["choices"][0]["message"]["content"]
        picked = sidecar.done(picked["lease"], status=status, retry=True).get("next")
    raise RuntimeError("no target could serve it")


def converse(path, name, turns, out):
    sidecar = Sidecar(path)
    messages, targets = [], []
    try:
        for turn in range(turns):
            messages.append({"role": "user", "content": f"{name}, turn {turn}: " + "all work and no play " * 50})
            target, reply = serve(sidecar, {"model": "m", "messages": messages})
            messages.append({"role": "assistant", "content": reply})
            targets.append(target)
        out[name] = targets
    finally:
        sidecar.close()


def main():
    path, conversations, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    out = {}
    threads = [threading.Thread(target=converse, args=(path, f"conversation {i}", turns, out)) for i in range(conversations)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    json.dump(out, sys.stdout)


main()
