// Everything that also works in a browser. The gRPC client is `@homeport/client/grpc`.

export * from "./events.ts";
export * from "./problems.ts";
export * as api from "./generated/api.ts";
export * as homeport from "./generated/homeport.v1.ts";
export * as orchion from "./generated/orchion.v1.ts";
