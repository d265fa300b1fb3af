// Validates values by the JSON Schemas of the HTTP interface: those keywords that its OpenAPI document uses.

import { InvalidMessage, type Problem } from "./problems.ts";

export interface JsonSchema {
  readonly [keyword: string]: any;
}

const PROBLEMS_MAX = 20;

/** The value itself, checked. Throws InvalidMessage. */
export function parse<T>(name: string, schemas: Readonly<Record<string, JsonSchema>>, value: unknown): T {
  const problems = problemsOf(schemas[name] ?? false, schemas, value, "");
  if (problems.length) throw new InvalidMessage(name, problems.slice(0, PROBLEMS_MAX));
  return value as T;
}

function problemsOf(
  schema: JsonSchema | boolean, schemas: Readonly<Record<string, JsonSchema>>, value: unknown, path: string,
): Problem[] {
  const problem = (message: string): Problem[] => [{ field: path || "body", message }];
  if (typeof schema === "boolean") return schema ? [] : problem("is not allowed");
  if (schema.$ref) return problemsOf(schemas[String(schema.$ref).split("/").pop() as string] ?? false, schemas, value, path);
  const choices: JsonSchema[] | undefined = schema.anyOf ?? schema.oneOf;
  if (choices) {
    const tried = choices.map((each) => problemsOf(each, schemas, value, path));
    if (!tried.some((found) => found.length === 0)) return tried.sort((one, two) => one.length - two.length)[0] ?? [];
  }
  for (const each of (schema.allOf ?? []) as JsonSchema[]) {
    const found = problemsOf(each, schemas, value, path);
    if (found.length) return found;
  }
  if ("const" in schema && value !== schema.const) return problem(`must be ${JSON.stringify(schema.const)}`);
  if (schema.enum && !schema.enum.includes(value)) return problem(`must be one of ${schema.enum.join(", ")}`);
  const types: string[] = schema.type === undefined ? [] : [schema.type].flat();
  if (types.length && !types.some((type) => isOf(type, value))) return problem(`must be ${types.join(" or ")}`);
  if (typeof value === "string") return textProblems(schema, value, problem);
  if (typeof value === "number") return numberProblems(schema, value, problem);
  if (Array.isArray(value)) {
    if (schema.maxItems !== undefined && value.length > schema.maxItems) return problem(`has more than ${schema.maxItems} items`);
    if (!schema.items) return [];
    return value.flatMap((each, place) => problemsOf(schema.items, schemas, each, `${path}[${place}]`));
  }
  if (typeof value === "object" && value !== null) return objectProblems(schema, schemas, value as Record<string, unknown>, path);
  return [];
}

function objectProblems(
  schema: JsonSchema, schemas: Readonly<Record<string, JsonSchema>>, value: Record<string, unknown>, path: string,
): Problem[] {
  const at = (name: string): string => (path ? `${path}.${name}` : name);
  const found: Problem[] = ((schema.required ?? []) as string[])
    .filter((name) => !(name in value))
    .map((name) => ({ field: at(name), message: "is missing" }));
  for (const [name, each] of Object.entries(value)) {
    const own = schema.properties?.[name] ?? schema.additionalProperties ?? true;
    if (own === false) found.push({ field: at(name), message: "is not a field" });
    else found.push(...problemsOf(own, schemas, each, at(name)));
  }
  return found;
}

function textProblems(schema: JsonSchema, value: string, problem: (message: string) => Problem[]): Problem[] {
  if (schema.minLength !== undefined && value.length < schema.minLength) return problem(`is shorter than ${schema.minLength}`);
  if (schema.maxLength !== undefined && value.length > schema.maxLength) return problem(`is longer than ${schema.maxLength}`);
  if (schema.pattern !== undefined && !new RegExp(schema.pattern, "u").test(value)) return problem(`must match ${schema.pattern}`);
  if (schema.format === "date-time" && Number.isNaN(Date.parse(value))) return problem("must be a time");
  return [];
}

function numberProblems(schema: JsonSchema, value: number, problem: (message: string) => Problem[]): Problem[] {
  if (schema.minimum !== undefined && value < schema.minimum) return problem(`must be at least ${schema.minimum}`);
  if (schema.maximum !== undefined && value > schema.maximum) return problem(`must be at most ${schema.maximum}`);
  if (schema.exclusiveMinimum !== undefined && value <= schema.exclusiveMinimum) return problem(`must be above ${schema.exclusiveMinimum}`);
  return [];
}

function isOf(type: string, value: unknown): boolean {
  switch (type) {
    case "null":
      return value === null;
    case "array":
      return Array.isArray(value);
    case "object":
      return typeof value === "object" && value !== null && !Array.isArray(value);
    case "integer":
      return Number.isInteger(value);
    default:
      return typeof value === type;
  }
}
