// Unary gRPC calls over node's own HTTP/2. A browser cannot make them: it uses the HTTP interface.

import { type ClientHttp2Session, type SecureClientSessionOptions, connect, constants } from "node:http2";
import type { Method } from "./protobuf.ts";

export const STATUS_NAMES = [
  "OK", "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED",
  "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE",
  "DATA_LOSS", "UNAUTHENTICATED",
] as const;

export class GrpcError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.name = "GrpcError";
    this.code = code;
  }

  get status(): string {
    return STATUS_NAMES[this.code] ?? "UNKNOWN";
  }
}

const CALL_MS = 10_000;
const HEADER = 5;

export class GrpcClient {
  readonly #session: ClientHttp2Session;
  readonly #metadata: Readonly<Record<string, string>>;

  /** `address` is http:// or https://HOST:PORT. Metadata goes with every call: `{ authorization: "Bearer KEY" }`. */
  constructor(address: string, metadata: Readonly<Record<string, string>> = {}, tls: SecureClientSessionOptions = {}) {
    this.#session = connect(address, tls);
    this.#session.on("error", () => {}); // Each call fails with it.
    this.#metadata = metadata;
  }

  close(): void {
    this.#session.close();
  }

  /** Throws GrpcError with the status of the server, and InvalidMessage before anything is sent. */
  async call<Request, Response>(method: Method<Request, Response>, request: Partial<Request>): Promise<Response> {
    const body = method.request.encode(request);
    const frame = Buffer.alloc(HEADER + body.length);
    frame.writeUInt32BE(body.length, 1);
    frame.set(body, HEADER);
    const answer = await this.#exchange(method.path, frame);
    return method.response.decode(new Uint8Array(answer.subarray(HEADER)));
  }

  #exchange(path: string, frame: Buffer): Promise<Buffer> {
    return new Promise((resolve, reject) => {
      const stream = this.#session.request({
        [constants.HTTP2_HEADER_METHOD]: "POST",
        [constants.HTTP2_HEADER_PATH]: path,
        "content-type": "application/grpc+proto",
        te: "trailers",
        ...this.#metadata,
      });
      const chunks: Buffer[] = [];
      let status = -1;
      let message = "The server closed the call without a status.";
      const note = (headers: Record<string, unknown>): void => {
        if (headers["grpc-status"] === undefined) return;
        status = Number(headers["grpc-status"]);
        message = decodeURIComponent(String(headers["grpc-message"] ?? ""));
      };
      stream.setTimeout(CALL_MS, () => stream.close(constants.NGHTTP2_CANCEL));
      stream.on("response", note);
      stream.on("trailers", note);
      stream.on("data", (chunk: Buffer) => chunks.push(chunk));
      stream.on("error", (error) => reject(new GrpcError(14, error.message)));
      stream.on("close", () => (status === 0 ? resolve(Buffer.concat(chunks)) : reject(new GrpcError(status < 0 ? 14 : status, message))));
      stream.end(frame);
    });
  }
}
