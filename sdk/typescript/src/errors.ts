// SPDX-License-Identifier: Apache-2.0
/**
 * What can go wrong, one class per kind of failure. Every error of this package is a HearthError; the ones that the server describes
 * have its code, param and request id.
 */

export class HearthError extends Error {
  /** The server's name for the request, where one was given. */
  requestId: string | undefined;

  constructor(message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = new.target.name;
  }
}

/** No server answers there; nothing was sent. */
export class ConnectError extends HearthError {}
/** No byte came for as long as the client waits. */
export class TimedOut extends HearthError {}
/** The connection ended before the answer was complete. */
export class ConnectionLost extends HearthError {}
/** What came is not an answer of Hearth. */
export class ProtocolError extends HearthError {}
/** The request was ended by its AbortSignal. */
export class Aborted extends HearthError {}

export interface Told {
  message?: string | undefined;
  code?: string | undefined;
  param?: string | undefined;
  type?: string | undefined;
}

/** The answer had begun, and the server ended it with an error. */
export class StreamFailed extends HearthError {
  readonly code: string | undefined;
  readonly param: string | undefined;
  readonly type: string | undefined;

  constructor(told: Told, requestId?: string) {
    super(told.message ?? "the server gave no reason");
    this.code = told.code;
    this.param = told.param;
    this.type = told.type;
    this.requestId = requestId;
  }
}

/** An answer with an error status; `param` is the JSON path of the wrong member, where there is one. */
export class StatusError extends HearthError {
  readonly code: string | undefined;
  readonly param: string | undefined;
  readonly type: string | undefined;

  constructor(
    readonly status: number,
    told: Told,
    requestId?: string,
    /** Seconds. */
    readonly retryAfter?: number,
  ) {
    super(`${status}: ${told.message ?? "the server gave no reason"}`);
    this.code = told.code;
    this.param = told.param;
    this.type = told.type;
    this.requestId = requestId;
  }
}

/** 400 and other mistakes of the request. */
export class BadRequest extends StatusError {}
/** 401: the key is missing or unknown. */
export class AuthenticationError extends StatusError {}
/** 403 */
export class PermissionDenied extends StatusError {}
/** 404: no such model, request or path. */
export class NotFound extends StatusError {}
/** 413: the body is larger than the server accepts. */
export class TooLarge extends StatusError {}
/** 429: the key has reached its limit; `retryAfter` says for how long. */
export class RateLimited extends StatusError {}
/** 499: somebody cancelled the request at the server. */
export class Cancelled extends StatusError {}
/** 5xx */
export class ServerError extends StatusError {}
/** 501: this server does not do that. */
export class NotOffered extends ServerError {}
/** 503: overloaded, loading or ending. */
export class Unavailable extends ServerError {}

const CLASSES: Record<number, typeof StatusError> = {
  401: AuthenticationError,
  403: PermissionDenied,
  404: NotFound,
  413: TooLarge,
  429: RateLimited,
  499: Cancelled,
  501: NotOffered,
  503: Unavailable,
};

const text = (value: unknown) => (typeof value === "string" ? value : undefined);

/** An error body in OpenAI's form ({error: {...}}) or Ollama's ({error: "..."}). */
export function toldBy(body: unknown): Told {
  const error = (body as { error?: unknown } | null)?.error;
  if (typeof error !== "object" || error === null) return { message: text(error) };
  const { message, code, param, type } = error as Record<string, unknown>;
  return { message: text(message), code: text(code), param: text(param), type: text(type) };
}

export function statusError(status: number, told: Told, requestId?: string, retryAfter?: number): StatusError {
  const Kind = CLASSES[status] ?? (status >= 500 ? ServerError : BadRequest);
  return new Kind(status, told, requestId, retryAfter);
}
