// SPDX-License-Identifier: Apache-2.0
/**
 * For Node.js: the same client over node:http, which knows Unix sockets and has no time-outs of its own (those of Node's fetch end an
 * answer whose head takes longer than five minutes). Every request has a connection of its own.
 */
import { request as httpRequest, type IncomingMessage, type RequestOptions } from "node:http";
import { request as httpsRequest } from "node:https";
import { Readable } from "node:stream";
import type { ReadableStream as NodeStream } from "node:stream/web";
import { Client as PlainClient } from "./client.js";
import type { ClientOptions, Fetch } from "./transport.js";

export * from "./index.js";

function responseOf(message: IncomingMessage): Response {
  const headers = new Headers();
  for (const [name, value] of Object.entries(message.headers))
    if (value !== undefined) headers.set(name, String(value));
  const status = message.statusCode ?? 500;
  const body = Readable.toWeb(message) as NodeStream<Uint8Array> as unknown as ReadableStream<Uint8Array>;
  return new Response(status === 204 || status === 304 ? null : body, { status, headers });
}

/** fetch over node:http; `socket`: the path of a Unix socket. */
export function nodeFetch(options: { socket?: string } & Pick<RequestOptions, "agent"> & { ca?: string } = {}): Fetch {
  return (url, { method, headers, body, signal }) =>
    new Promise((resolve, reject) => {
      const secure = url.startsWith("https:");
      const length: Record<string, string> =
        body === undefined ? {} : { "content-length": String(Buffer.byteLength(body)) };
      const where = options.socket === undefined ? {} : { socketPath: options.socket };
      const more = {
        agent: options.agent ?? false,
        signal,
        ...where,
        ...(options.ca === undefined ? {} : { ca: options.ca }),
      };
      const send = secure ? httpsRequest : httpRequest;
      const out = send(url, { method, headers: { ...headers, ...length }, ...more }, (message) => {
        try {
          resolve(responseOf(message));
        } catch (error) {
          message.destroy();
          reject(error); // a status that no Response can have
        }
      });
      out.on("error", reject);
      out.end(body);
    });
}

export interface NodeClientOptions extends ClientOptions {
  /** Certificates in PEM, for https with one that the system does not know. */
  ca?: string;
}

/** As Client of the package itself; `url` may also be unix:/path/of/the/socket. */
export class Client extends PlainClient {
  constructor(options: NodeClientOptions = {}) {
    const { ca, ...plain } = options;
    const given = plain.url ?? process.env.HEARTH_HOST ?? "";
    const path = given.startsWith("unix:") ? given.replace(/^unix:(\/\/)?/, "") : undefined;
    if (path !== undefined && !path.startsWith("/"))
      throw new TypeError(`'${given}': the path of a Unix socket begins with /`);
    const way = { ...(path === undefined ? {} : { socket: path }), ...(ca === undefined ? {} : { ca }) };
    super({ ...plain, ...(path === undefined ? {} : { url: given }), fetch: plain.fetch ?? nodeFetch(way) });
  }
}
