// A conversation of a client of the TypeScript SDK with a server over a
// scripted engine: create, write, run with progress, page, talk to a run,
// cancel, read, stop. Arguments: the directory of the SDK, then "stdio" and a
// command, or "http" or "sse" with an address and a token.
import assert from "node:assert/strict";
import { pathToFileURL } from "node:url";

const [, , sdk, transportName, target, extra] = process.argv;
const load = (path) => import(pathToFileURL(`${sdk}/dist/esm/client/${path}.js`));
const { Client } = await load("index");

async function connect() {
  if (transportName === "stdio") {
    const { StdioClientTransport } = await load("stdio");
    return new StdioClientTransport({ command: target, args: [extra] });
  }
  const requestInit = { headers: { Authorization: `Bearer ${extra}` } };
  if (transportName === "http") {
    const { StreamableHTTPClientTransport } = await load("streamableHttp");
    return new StreamableHTTPClientTransport(new URL(target), { requestInit });
  }
  const { SSEClientTransport } = await load("sse");
  return new SSEClientTransport(new URL(target), { requestInit });
}

const client = new Client({ name: "conversation", version: "1" });
await client.connect(await connect());
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => result.content.map((c) => c.text).join("");

assert.match(client.getInstructions(), /run_code/);
const { tools } = await client.listTools();
const offered = tools.map((tool) => tool.name);
for (const name of ["create_sandbox", "write_file", "run_code", "run_command", "read_file", "stop_sandbox"]) {
  assert.ok(offered.includes(name), `${name} is not among ${offered}`);
}

const { sandbox_id } = (await call("create_sandbox", { name: "talk" })).structuredContent;
await call("write_file", { sandbox_id, path: "in.txt", content: "grüße" });

const reports = [];
const slow = await call(
  "run_code",
  { sandbox_id, code: "out begun\nsleep 2500ms\nout done\nerr note" },
  { onprogress: (p) => reports.push(p), resetTimeoutOnProgress: true, timeout: 2000 },
);
assert.equal(slow.structuredContent.stdout, "begun\ndone\n");
assert.ok(reports.length >= 2 && reports[0].message === "begun", JSON.stringify(reports));
assert.ok(reports.every((p, i) => i === 0 || p.progress > reports[i - 1].progress));

const failed = await call("run_command", { sandbox_id, command: ["out a", "exit 4"] });
assert.equal(failed.isError, true);
assert.equal(failed.structuredContent.verdict.code, "failed");
assert.match(text(failed), /exit code 4/);

const talk = (await call("run_code", { sandbox_id, code: "read\nread", wait_seconds: 0 })).structuredContent;
assert.equal(talk.status, "running");
await call("send_input", { run_id: talk.run_id, text: "one\n" });
await call("send_input", { run_id: talk.run_id, text: "two\n", eof: true });
const talked = (await call("get_run", { run_id: talk.run_id, wait_seconds: 10 })).structuredContent;
assert.equal(talked.stdout, "one\ntwo\n");
const found = await call("get_run", { run_id: talk.run_id, grep: "tw" });
assert.equal(found.structuredContent.stdout, "4: two\n");

const stop = new AbortController();
setTimeout(() => stop.abort("enough"), 300);
await assert.rejects(call("run_code", { sandbox_id, code: "sleep 1h" }, { signal: stop.signal }));

const wrong = await call("run_code", { code: 5 });
assert.equal(wrong.isError, true);
assert.match(text(wrong), /code: 5 is not a string/);
// The SDK checks the structured content of an error against the output schema.
assert.deepEqual(wrong.structuredContent, { kind: "invalid", message: "code: 5 is not a string", argument: "code" });
await assert.rejects(call("no_such_tool", {}), /unknown tool/);

assert.equal(text(await call("read_file", { sandbox_id, path: "in.txt" })), "grüße");
const resource = await client.readResource({ uri: `sandbox://${sandbox_id}/files/data/in.txt` });
assert.equal(resource.contents[0].text, "grüße");
await assert.rejects(client.readResource({ uri: "run://none/output" }), /not found/);

assert.match(text(await call("stop_sandbox", { sandbox_id })), /stopped/);
assert.equal((await call("get_sandbox", { sandbox_id })).structuredContent.state, "stopped");
await client.close();
