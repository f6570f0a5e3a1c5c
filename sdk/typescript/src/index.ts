// SPDX-License-Identifier: Apache-2.0
/** The client of a Hearth server for Node.js and browsers; `hearth-client/node` adds Unix sockets. */
export { Answer } from "./answer.js";
export { Client, Models, Requests, type RunToolsOptions } from "./client.js";
export * from "./errors.js";
export { PullStream, Stream } from "./stream.js";
export { Tool, type ToolRun, tool } from "./tools.js";
export type { ClientOptions, Fetch } from "./transport.js";
export type * from "./types.js";
