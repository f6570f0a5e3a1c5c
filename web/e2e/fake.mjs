// Stands before the real server and passes everything on, but for what a test wants to go wrong.
import { createServer, request } from "node:http";

export class Fake {
  constructor(port) {
    this.target = port;
    this.chat = null; // (body, response) => true when it has answered
    this.asked = []; // bodies of chat requests
    this.paths = []; // "METHOD path" of everything
    this.prefix = "";
    this.headers = (h) => h;
  }

  async start() {
    this.server = createServer((q, a) => this.take(q, a));
    await new Promise((tell) => this.server.listen(0, "127.0.0.1", tell));
    this.url = `http://127.0.0.1:${this.server.address().port}${this.prefix}/`;
    return this;
  }

  take(q, a) {
    if (!q.url.startsWith(this.prefix)) return a.writeHead(404).end();
    q.url = q.url.slice(this.prefix.length);
    this.paths.push(`${q.method} ${q.url}`);
    const parts = [];
    q.on("data", (d) => parts.push(d));
    q.on("end", () => {
      const body = Buffer.concat(parts);
      if (q.url === "/v1/chat/completions") {
        const asked = JSON.parse(body);
        this.asked.push(asked);
        if (this.chat?.(asked, a)) return;
      }
      this.pass(q, body, a);
    });
  }

  pass(q, body, a) {
    const headers = { ...q.headers, host: `127.0.0.1:${this.target}` };
    delete headers.origin;
    const up = request({ port: this.target, host: "127.0.0.1", method: q.method, path: q.url, headers }, (r) => {
      a.writeHead(r.statusCode, this.headers(r.headers));
      r.pipe(a);
      r.on("error", () => a.destroy());
    });
    up.on("error", () => a.destroy());
    a.on("close", () => up.destroy());
    up.end(body);
  }

  close() {
    this.server.closeAllConnections();
    this.server.close();
  }
}

export const begin = (a) =>
  a.writeHead(200, {
    "Content-Type": "text/event-stream",
    "X-Request-Id": "req-0000000000000001",
    "Cache-Control": "no-cache",
  });
export const put = (a, value) => a.write(`data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`);
export const piece = (delta, n, finish = null) => ({
  choices: [{ index: 0, delta, finish_reason: finish }],
  timings: n ? { predicted_n: n, predicted_ms: n * 5 } : undefined,
});
export const end = (a, n = 1) => {
  put(a, piece({}, n, "stop"));
  put(a, {
    choices: [],
    usage: { prompt_tokens: 9, completion_tokens: n, total_tokens: 9 + n },
    timings: { predicted_per_second: 200 },
  });
  put(a, "[DONE]");
  a.end();
};

/** An answer in one go. */
export const says = (text) => (_body, a) => {
  begin(a);
  put(a, piece({ content: text }, 1));
  end(a);
  return true;
};

/** A word every `ms`; ends after all of them, or is destroyed after `cutAt`. */
export const slowly =
  (words, ms, cutAt = -1) =>
  (_body, a) => {
    begin(a);
    let i = 0;
    const t = setInterval(() => {
      if (i === cutAt) {
        clearInterval(t);
        setTimeout(() => a.socket.end(), 500); // a browser drops what it has not given to the page when a body ends in an error
      } else if (i === words.length) {
        clearInterval(t);
        end(a, i);
      } else put(a, piece({ content: words[i++] }, i));
    }, ms);
    a.on("close", () => clearInterval(t));
    return true;
  };
