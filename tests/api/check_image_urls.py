# SPDX-License-Identifier: Apache-2.0
"""Pictures by address: off unless hosts are named; then from a loopback server, allowed by security.image_networks: what the same bytes
inside the request say. Redirects, other hosts, plain http, large files and unknown certificates are refused, and nothing private is reached
without the exception. --long: a host that hardly sends."""
import http.server
import os
import ssl
import sys
import tempfile
import threading
import time

from hearth_server import Checks, Server
from vision_model import make, picture

PROGRAM = sys.argv[1]
HERE = os.path.dirname(os.path.abspath(__file__))
CERT, KEY = (os.path.join(HERE, "..", "fixtures", "tls", name) for name in ("cert.pem", "key.pem"))
A = picture("a")
ASKED = []


class Pictures(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def send(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in dict({"Content-Length": len(body)}, **headers).items():
            if value is not None:
                self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        ASKED.append(self.path)
        try:
            if self.path == "/a.png":
                self.send(200, A)
            elif self.path == "/moved":
                self.send(302, Location="/a.png")
            elif self.path == "/claims":
                self.send(200, b"", **{"Content-Length": 21 << 20})
                self.close_connection = True
            elif self.path == "/endless":
                self.close_connection = True
                self.send(200, b"x" * (21 << 20), **{"Content-Length": None, "Connection": "close"})
            elif self.path == "/drips":
                self.send(200, b"x", **{"Content-Length": 1000})
                time.sleep(8)
                self.close_connection = True
            elif self.path == "/text":
                self.send(200, b"this is a text")
            else:
                self.send(404)
        except (ConnectionError, ssl.SSLError):
            self.close_connection = True


def listen():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pictures)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERT, KEY)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def parts(url):
    return [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": "What?"}]


def post(server, url):
    return server.post("/v1/chat/completions", {"model": "gemma3", "temperature": 0, "max_tokens": 6, "messages": [{"role": "user", "content": parts(url)}]})


def refused(server, url, words):
    status, got = post(server, url)
    assert status == 400 and words in got["error"]["message"], (url, status, got)


def fetched(server):
    import base64
    status, want = post(server, "data:image/png;base64," + base64.b64encode(A).decode())
    assert status == 200, want
    want = want["choices"][0]["message"]["content"]
    status, got = post(server, f"https://localhost:{PORT}/a.png")
    assert status == 200 and got["choices"][0]["message"]["content"] == want, got
    status, got = server.post("/v1/messages", {"model": "gemma3", "max_tokens": 6, "temperature": 0, "messages": [{"role": "user", "content": [
        {"type": "image", "source": {"type": "url", "url": f"https://localhost:{PORT}/a.png"}}, {"type": "text", "text": "What?"}]}]})
    assert status == 200 and got["content"][0]["text"] == want, got
    status, got = server.post("/v1/responses", {"model": "gemma3", "temperature": 0, "max_output_tokens": 6, "input": [{"role": "user", "content": [
        {"type": "input_image", "image_url": f"https://localhost:{PORT}/a.png"}, {"type": "input_text", "text": "What?"}]}]})
    assert status == 200 and got["output"][-1]["content"][0]["text"] == want, got


def limits(server):
    base = f"https://localhost:{PORT}"
    ASKED.clear()
    refused(server, base + "/moved", "redirects are not followed")
    assert ASKED == ["/moved"], ASKED
    refused(server, base + "/claims", "more than")
    refused(server, base + "/endless", "more than")
    refused(server, base + "/missing", "404")
    refused(server, base + "/text", "not a picture")
    ASKED.clear()
    refused(server, f"http://localhost:{PORT}/a.png", "not fetched by http")
    refused(server, f"https://127.0.0.1:{PORT}/a.png", "security.image_hosts")
    refused(server, "https://localhost/a.png", "security.image_hosts")
    refused(server, f"https://x@localhost:{PORT}/a.png", "cannot be read")
    assert ASKED == [], ASKED
    if "--long" in sys.argv:
        begun = time.time()
        refused(server, base + "/drips", "did not come")
        assert time.time() - begun < 8


def others():
    """Without the exception for the network, without the certificate, and without hosts."""
    trust = {"SSL_CERT_FILE": CERT}
    for env, words in ((trust, "not public"), ({"HEARTH_IMAGE_NETWORKS": "127.0.0.0/8", "SSL_CERT_FILE": ""}, "cannot be fetched"),
                       (dict(trust, HEARTH_IMAGE_HOSTS="pictures.example"), "security.image_hosts")):
        ASKED.clear()
        with Server(PROGRAM, *OPTIONS, env=dict({"HEARTH_IMAGE_HOSTS": f"localhost:{PORT}"}, **env)) as server:
            refused(server, f"https://localhost:{PORT}/a.png", words)
        assert ASKED == [], ASKED


PORT = listen()
OPTIONS = []


def main():
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        OPTIONS.extend(["--model", "gemma3=" + make("gemma3", os.path.join(folder, "gemma3"))])
        env = {"SSL_CERT_FILE": CERT, "HEARTH_IMAGE_NETWORKS": "127.0.0.0/8,::1"}
        with Server(PROGRAM, *OPTIONS, "--allow-image-urls", "pictures.example", "--allow-image-urls", f"localhost:{PORT}", env=env) as server:
            checks.run(fetched, server)
            checks.run(limits, server)
        checks.run(others)
    checks.exit()


main()
