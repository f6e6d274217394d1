// Perfetto's trace processor, compiled to WebAssembly, behind the HTTP interface that PyPI's `perfetto` speaks.
//
//     node shell.cjs FOLDER … --http-port PORT
//
// FOLDER holds engine_bundle.js and trace_processor.wasm of Perfetto's UI. Other arguments of trace_processor_shell are
// ignored. Requests and replies are messages of protos/perfetto/trace_processor/trace_processor.proto, by field number.
"use strict";
const http = require("http");
const path = require("path");

const [METHOD, TRACE_DATA, QUERY, APPENDED, QUERIED] = [2, 101, 103, 201, 203];
const [APPEND, FINALIZE, STREAM_QUERY] = [1, 2, 3];

function varint(value) {
  const bytes = [];
  for (; value > 127; value = Math.floor(value / 128)) bytes.push((value % 128) | 128);
  return Buffer.from([...bytes, value]);
}

const integer = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const blob = (field, bytes) => Buffer.concat([varint(field * 8 + 2), varint(bytes.length), bytes]);

// Yields [field, bytes] for each field of a message that has a length; skips numbers.
function* blobs(message) {
  let at = 0;
  const read = () => {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = message[at++];
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
  };
  while (at < message.length) {
    const tag = read();
    const size = read();
    if (tag % 8 !== 2) continue;
    yield [Math.floor(tag / 8), message.subarray(at, at + size)];
    at += size;
  }
}

function startEngine(folder) {
  process.chdir(folder); // where the engine looks for its .wasm
  global.self = {};
  const replies = [];
  const port = { postMessage: (data) => replies.push(Buffer.from(data)) };
  require(path.join(folder, "engine_bundle.js"));
  global.self.onmessage({ data: { enginePort: port } });
  let calls = 0;
  // Returns what the engine replied in one field: parts of one message, which are that message when they are joined.
  return (method, request, field) => {
    replies.length = 0;
    const call = Buffer.concat([integer(1, ++calls), integer(METHOD, method), request]);
    port.onmessage({ data: new Uint8Array(blob(1, call)) });
    const messages = [...blobs(Buffer.concat(replies))].map(([, message]) => message);
    return Buffer.concat(messages.flatMap((m) => [...blobs(m)].filter(([f]) => f === field).map(([, bytes]) => bytes)));
  };
}

const call = startEngine(path.resolve(process.argv[2]));
const answers = {
  "/status": () => Buffer.alloc(0),
  "/parse": (body) => call(APPEND, blob(TRACE_DATA, body), APPENDED),
  "/notify_eof": () => call(FINALIZE, Buffer.alloc(0), 0),
  "/query": (body) => call(STREAM_QUERY, blob(QUERY, body), QUERIED),
};
http
  .createServer((request, response) => {
    const body = [];
    request.on("data", (part) => body.push(part));
    request.on("end", () => response.end(answers[request.url](Buffer.concat(body))));
  })
  .listen(Number(process.argv[process.argv.indexOf("--http-port") + 1]), "127.0.0.1");
