// Protocol buffers (proto3) by description: the generated files list the fields of each message, and this encodes, decodes
// and validates them. 64-bit numbers are plain numbers, and one beyond 2^53 is refused rather than rounded.

import { InvalidMessage, type Problem } from "./problems.ts";

export type Scalar = "string" | "bool" | "bytes" | "double" | "float" | "int32" | "int64" | "uint32" | "uint64" | "enum";

export interface Field {
  readonly number: number;
  readonly name: string;
  readonly type: Scalar | (() => Message<any>);
  readonly repeated?: boolean;
  /** Of a map: the type of its keys. */
  readonly key?: "string";
  readonly optional?: boolean;
  /** Of an enum: its names by number. */
  readonly names?: readonly string[];
}

export interface Method<Request, Response> {
  readonly path: string;
  readonly request: Message<Request>;
  readonly response: Message<Response>;
  readonly clientStream: boolean;
  readonly serverStream: boolean;
}

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const FIXED32 = 5;
const DEPTH_MAX = 64;
const DEFAULTS: Readonly<Record<Scalar, unknown>> = {
  string: "", bool: false, bytes: new Uint8Array(), double: 0, float: 0, int32: 0, int64: 0, uint32: 0, uint64: 0, enum: 0,
};

export class Message<T> {
  readonly name: string;
  readonly fields: readonly Field[];

  constructor(name: string, fields: readonly Field[]) {
    this.name = name;
    this.fields = fields;
  }

  /** What is wrong with a value; empty where nothing is. A field may be left out, and an unknown one is a mistake. */
  problems(value: unknown, path = ""): Problem[] {
    if (typeof value !== "object" || value === null || Array.isArray(value)) {
      return [{ field: path || this.name, message: "must be an object" }];
    }
    const known = new Set(this.fields.map((field) => field.name));
    const found = Object.keys(value)
      .filter((name) => !known.has(name))
      .map((name) => ({ field: join(path, name), message: "is not a field" }));
    for (const field of this.fields) {
      const given = (value as Record<string, unknown>)[field.name];
      if (given !== undefined) found.push(...fieldProblems(field, given, join(path, field.name)));
    }
    return found;
  }

  /** The value itself, checked. Throws InvalidMessage. */
  parse(value: unknown): Partial<T> {
    const problems = this.problems(value);
    if (problems.length) throw new InvalidMessage(this.name, problems);
    return value as Partial<T>;
  }

  encode(value: Partial<T>): Uint8Array {
    this.parse(value);
    const out: number[] = [];
    writeMessage(out, this, value as Record<string, unknown>);
    return Uint8Array.from(out);
  }

  /** Throws RangeError for bytes that are not such a message. Unknown fields are skipped: the sender may be newer. */
  decode(bytes: Uint8Array): T {
    return readMessage(new Reader(bytes), this, 0) as T;
  }
}

function join(path: string, name: string): string {
  return path ? `${path}.${name}` : name;
}

function fieldProblems(field: Field, value: unknown, path: string): Problem[] {
  if (field.key) {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return [{ field: path, message: "must be an object" }];
    return Object.entries(value).flatMap(([key, each]) => itemProblems(field, each, join(path, key)));
  }
  if (field.repeated) {
    if (!Array.isArray(value)) return [{ field: path, message: "must be a list" }];
    return value.flatMap((each, place) => itemProblems(field, each, `${path}[${place}]`));
  }
  return itemProblems(field, value, path);
}

function itemProblems(field: Field, value: unknown, path: string): Problem[] {
  if (typeof field.type === "function") return field.type().problems(value, path);
  const message = scalarProblem(field.type, value);
  return message ? [{ field: path, message }] : [];
}

function scalarProblem(type: Scalar, value: unknown): string | undefined {
  switch (type) {
    case "string":
      return typeof value === "string" ? undefined : "must be a text";
    case "bool":
      return typeof value === "boolean" ? undefined : "must be true or false";
    case "bytes":
      return value instanceof Uint8Array ? undefined : "must be a Uint8Array";
    case "double":
    case "float":
      return typeof value === "number" ? undefined : "must be a number";
    default: {
      const [least, most] = BOUNDS[type];
      const fits = Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most;
      return fits ? undefined : `must be a whole number from ${least} to ${most}`;
    }
  }
}

const BOUNDS: Readonly<Record<"int32" | "int64" | "uint32" | "uint64" | "enum", readonly [number, number]>> = {
  int32: [-(2 ** 31), 2 ** 31 - 1],
  enum: [0, 2 ** 31 - 1],
  uint32: [0, 2 ** 32 - 1],
  int64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  uint64: [0, Number.MAX_SAFE_INTEGER],
};

function writeMessage(out: number[], message: Message<any>, value: Record<string, unknown>): void {
  for (const field of message.fields) {
    const given = value[field.name];
    if (given === undefined) continue;
    if (field.key) {
      for (const [key, each] of Object.entries(given as object)) {
        const entry: number[] = [];
        writeItem(entry, { number: 1, name: "key", type: field.key }, key);
        writeItem(entry, { ...field, number: 2 }, each);
        writeBytes(out, field.number, entry);
      }
    } else if (field.repeated) {
      for (const each of given as unknown[]) writeItem(out, field, each);
    } else if (field.optional || typeof field.type === "function" || !isDefault(field.type, given)) {
      writeItem(out, field, given);
    }
  }
}

function isDefault(type: Scalar, value: unknown): boolean {
  return type === "bytes" ? (value as Uint8Array).length === 0 : value === DEFAULTS[type];
}

function writeItem(out: number[], field: Field, value: unknown): void {
  if (typeof field.type === "function") {
    const inner: number[] = [];
    writeMessage(inner, field.type(), value as Record<string, unknown>);
    writeBytes(out, field.number, inner);
    return;
  }
  switch (field.type) {
    case "string":
      writeBytes(out, field.number, new TextEncoder().encode(value as string));
      break;
    case "bytes":
      writeBytes(out, field.number, value as Uint8Array);
      break;
    case "double":
    case "float": {
      const size = field.type === "double" ? 8 : 4;
      const view = new DataView(new ArrayBuffer(size));
      if (size === 8) view.setFloat64(0, value as number, true);
      else view.setFloat32(0, value as number, true);
      writeVarint(out, BigInt((field.number << 3) | (size === 8 ? FIXED64 : FIXED32)));
      out.push(...new Uint8Array(view.buffer));
      break;
    }
    default:
      writeVarint(out, BigInt((field.number << 3) | VARINT));
      writeVarint(out, BigInt.asUintN(64, BigInt(value as number | boolean)));
  }
}

function writeBytes(out: number[], number: number, content: ArrayLike<number>): void {
  writeVarint(out, BigInt((number << 3) | LENGTH));
  writeVarint(out, BigInt(content.length));
  for (let place = 0; place < content.length; place++) out.push(content[place] as number);
}

function writeVarint(out: number[], value: bigint): void {
  let left = value;
  while (left > 127n) {
    out.push(Number(left & 127n) | 128);
    left >>= 7n;
  }
  out.push(Number(left));
}

class Reader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #position = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd(): boolean {
    return this.#position >= this.#bytes.length;
  }

  take(count: number): Uint8Array {
    if (count < 0 || this.#position + count > this.#bytes.length) throw new RangeError("The message is cut off.");
    this.#position += count;
    return this.#bytes.subarray(this.#position - count, this.#position);
  }

  varint(): bigint {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = this.take(1)[0] as number;
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    throw new RangeError("A number of the message is too long.");
  }

  chunk(): Uint8Array {
    return this.take(Number(this.varint()));
  }

  float(size: 4 | 8): number {
    const at = this.#position;
    this.take(size);
    return size === 8 ? this.#view.getFloat64(at, true) : this.#view.getFloat32(at, true);
  }

  skip(kind: number): void {
    if (kind === VARINT) this.varint();
    else if (kind === FIXED64) this.take(8);
    else if (kind === LENGTH) this.chunk();
    else if (kind === FIXED32) this.take(4);
    else throw new RangeError(`The message has a field of the unknown kind ${kind}.`);
  }
}

function readMessage(reader: Reader, message: Message<any>, depth: number): Record<string, unknown> {
  if (depth > DEPTH_MAX) throw new RangeError("The message is nested too deeply.");
  const value = emptyValue(message);
  const fields = new Map(message.fields.map((field) => [field.number, field]));
  while (!reader.isAtEnd) {
    const tag = Number(reader.varint());
    const field = fields.get(tag >>> 3);
    if (field === undefined) reader.skip(tag & 7);
    else readField(reader, field, tag & 7, value, depth);
  }
  return value;
}

function emptyValue(message: Message<any>): Record<string, unknown> {
  const value: Record<string, unknown> = {};
  for (const field of message.fields) {
    if (field.key) value[field.name] = {};
    else if (field.repeated) value[field.name] = [];
    else if (!field.optional && typeof field.type !== "function") value[field.name] = DEFAULTS[field.type];
  }
  return value;
}

function readField(reader: Reader, field: Field, kind: number, value: Record<string, unknown>, depth: number): void {
  if (field.key) {
    const entry = new Message<any>("entry", [
      { number: 1, name: "key", type: field.key },
      { number: 2, name: "value", type: field.type },
    ]);
    const read = readMessage(new Reader(reader.chunk()), entry, depth + 1);
    (value[field.name] as Record<string, unknown>)[read.key as string] = read.value;
  } else if (field.repeated) {
    const list = value[field.name] as unknown[];
    // Numbers of a list come packed in one chunk, or one by one.
    if (kind === LENGTH && typeof field.type === "string" && field.type !== "string" && field.type !== "bytes") {
      const packed = new Reader(reader.chunk());
      while (!packed.isAtEnd) list.push(readItem(packed, field, depth));
    } else list.push(readItem(reader, field, depth));
  } else value[field.name] = readItem(reader, field, depth);
}

function readItem(reader: Reader, field: Field, depth: number): unknown {
  if (typeof field.type === "function") return readMessage(new Reader(reader.chunk()), field.type(), depth + 1);
  switch (field.type) {
    case "string":
      return new TextDecoder("utf-8", { fatal: true }).decode(reader.chunk());
    case "bytes":
      return reader.chunk().slice();
    case "double":
      return reader.float(8);
    case "float":
      return reader.float(4);
    case "bool":
      return reader.varint() !== 0n;
    default: {
      const read = reader.varint();
      const signed = field.type === "int32" || field.type === "int64" ? BigInt.asIntN(64, read) : read;
      const found = Number(signed);
      if (!Number.isSafeInteger(found)) throw new RangeError(`${field.name} is beyond 2^53.`);
      return found;
    }
  }
}
