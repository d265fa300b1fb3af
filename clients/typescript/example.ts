// Registers a node, says that it lives, and reads events until central knows it. Run by the tests:
//
//   GRPC=http://127.0.0.1:50051 API=http://127.0.0.1:8080 GRPC_KEY=… API_KEY=… node clients/typescript/example.ts

import { GrpcClient, GrpcError } from "./src/grpc.ts";
import { InvalidMessage, api, homeport, orchion, readEvents } from "./src/index.ts";

const { GRPC = "http://127.0.0.1:50051", API = "http://127.0.0.1:8080", GRPC_KEY, API_KEY, NODE = "from-typescript" } = process.env;
const bearer = (key: string | undefined): Record<string, string> => (key ? { authorization: `Bearer ${key}` } : {});

async function refusal(call: () => Promise<unknown>): Promise<string> {
  try {
    await call();
    return "OK";
  } catch (error) {
    if (error instanceof GrpcError) return `${error.status}: ${error.message}`;
    if (error instanceof InvalidMessage) return `InvalidMessage: ${error.problems.map((each) => each.field).join(", ")}`;
    throw error;
  }
}

const client = new GrpcClient(GRPC, bearer(GRPC_KEY));
const { RegisterNode, Heartbeat, ListNodes, UpdateNode, UnregisterNode } = homeport.NodesService;
const capabilities = { cpu_cores: 4, memory_bytes: 8 * 2 ** 30, os: "linux", architecture: "arm64", gpus: [{ model: "Tiny" }] };

const welcome = await client.call(RegisterNode, { node: { id: NODE, hostname: "übung", capabilities, labels: { zone: "a" } } });
await client.call(Heartbeat, { node_id: NODE });
await client.call(UpdateNode, { node_id: NODE, capabilities: { ...capabilities, cpu_cores: 8 } });
const listed = (await client.call(ListNodes, {})).nodes.find((node) => node.id === NODE);

const refused = {
  no_id: await refusal(() => client.call(RegisterNode, { node: { capabilities } })),
  unknown: await refusal(() => client.call(Heartbeat, { node_id: "nobody" })),
  wrong_type: await refusal(() => client.call(RegisterNode, { node: { id: 7 as unknown as string } })),
};

let seen: unknown;
const stop = AbortSignal.timeout(20_000);
for await (const event of readEvents(`${API}/api/v1/events?subject=node/${NODE}`, { ...(API_KEY ? { token: API_KEY } : {}), after: "0", signal: stop })) {
  if (event.event === "node.joined") {
    seen = { event: event.event, ...JSON.parse(event.data) };
    break;
  }
}

const answer: unknown = await (await fetch(`${API}/api/v1/nodes`, { headers: bearer(API_KEY) })).json();
const nodes = api.parse("NodesBody", answer).nodes.map((node) => node.id);
let invalid = "";
try {
  api.parse("NodesBody", { nodes: [{ id: 3 }] });
} catch (error) {
  invalid = error instanceof InvalidMessage ? error.message : String(error);
}

await client.call(UnregisterNode, { node_id: NODE });
refused.unknown += ` / ${await refusal(() => client.call(UnregisterNode, { node_id: NODE }))}`;
client.close();
const roundTrip = orchion.Node.decode(orchion.Node.encode({ id: "x", last_seen_unix: -1, capabilities: { cpu: "8 cores" } }));
console.log(JSON.stringify({ welcome, listed, refused, seen, nodes, invalid, roundTrip }));
