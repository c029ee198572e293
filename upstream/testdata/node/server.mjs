// A thin server around llama.cpp, as node-llama-cpp brings it: enough of OpenAI's
// API to ask a real engine. Started as: node server.mjs model.gguf
// It prints its address, and ends when its standard input does.
import http from "node:http";
import { getLlama } from "node-llama-cpp";

const places = 4;
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, progressLogs: false, logLevel: "error", maxThreads: 1 });
const model = await llama.loadModel({ modelPath: process.argv[2], gpuLayers: 0 });
const context = await model.createContext({ contextSize: 256, batchSize: 256, sequences: places, threads: 1 });
const embedder = await model.createEmbeddingContext({ contextSize: 256, threads: 1 });

const names = { user: "<|user|>", assistant: "<|assistant|>", system: "<|system|>" };
const stats = { aborted: 0, running: 0 };
const waiting = [];

// place waits for one of the context's sequences.
async function place() {
  if (stats.running >= places) await new Promise((resolve) => waiting.push(resolve));
  else stats.running++;
  return context.getSequence();
}

// leave gives a sequence back, to whoever has waited the longest.
async function leave(sequence) {
  await sequence.dispose();
  const next = waiting.shift();
  if (next) next();
  else stats.running--;
}

// tokens is the prompt of a request, with the template of the tiny model.
function tokens(body) {
  if (Array.isArray(body.prompt)) return body.prompt;
  if (body.prompt !== undefined) return [model.tokens.bos, ...model.tokenize(body.prompt)].filter((t) => t !== null);
  const text = body.messages.map((m) => names[m.role] + "\n" + m.content + "\n").join("") + names.assistant + "\n";
  return [model.tokens.bos, ...model.tokenize(text, true)].filter((t) => t !== null);
}

// generate yields the texts of an answer's tokens and then its end.
async function* generate(body, prompt, gone) {
  const max = body.max_tokens ?? 256 - prompt.length;
  const sequence = await place();
  try {
    const seen = [];
    let shown = "";
    let reason = "stop"; // the loop ends at a token that ends an answer
    const options = { temperature: body.temperature ?? 1, topK: body.top_k, topP: body.top_p, minP: body.min_p, seed: body.seed };
    for await (const token of sequence.evaluate(prompt, options)) {
      if (gone()) {
        stats.aborted++;
        return;
      }
      seen.push(token);
      const text = model.detokenize(seen, false, prompt);
      if (!text.endsWith("\uFFFD")) {
        yield { text: text.slice(shown.length), count: seen.length };
        shown = text;
      }
      if (seen.length >= max) {
        reason = "length";
        break;
      }
    }
    yield { reason, count: seen.length };
  } finally {
    await leave(sequence);
  }
}

async function complete(body, chat, res) {
  const prompt = tokens(body);
  if (prompt.length >= 256) {
    const error = { code: 400, type: "exceed_context_size_error", message: `request (${prompt.length} tokens) exceeds the available context size (256 tokens), try increasing it` };
    res.writeHead(400, { "Content-Type": "application/json" }).end(JSON.stringify({ error }));
    return;
  }
  let gone = false;
  res.on("close", () => (gone = true));
  const head = { id: "x", object: chat ? "chat.completion.chunk" : "text_completion", created: 0, model: "llama.cpp" };
  const send = (rest) => res.write("data: " + JSON.stringify({ ...head, ...rest }) + "\n\n");
  res.writeHead(200, { "Content-Type": "text/event-stream" });
  if (chat) send({ choices: [{ index: 0, delta: { role: "assistant", content: null }, finish_reason: null }] });
  for await (const step of generate(body, prompt, () => gone)) {
    const what = step.text === undefined ? {} : chat ? { content: step.text } : undefined;
    const finish_reason = step.reason ?? null;
    send({ choices: [chat ? { index: 0, delta: what, finish_reason } : { index: 0, text: step.text ?? "", finish_reason }] });
    if (step.reason && body.stream_options?.include_usage) {
      send({ choices: [], usage: { prompt_tokens: prompt.length, completion_tokens: step.count, total_tokens: prompt.length + step.count } });
    }
  }
  res.end("data: [DONE]\n\n");
}

async function embed(body) {
  const data = [];
  let count = 0;
  for (const [index, input] of body.input.entries()) {
    const list = typeof input === "string" ? model.tokenize(input) : input;
    count += list.length;
    data.push({ object: "embedding", index, embedding: Array.from((await embedder.getEmbeddingFor(list)).vector) });
  }
  return { object: "list", model: "llama.cpp", data, usage: { prompt_tokens: count, total_tokens: count } };
}

const server = http.createServer(async (req, res) => {
  const json = (value) => res.writeHead(200, { "Content-Type": "application/json" }).end(JSON.stringify(value));
  try {
    const parts = [];
    for await (const part of req) parts.push(part);
    const body = parts.length ? JSON.parse(Buffer.concat(parts).toString()) : {};
    switch (req.method + " " + req.url) {
      case "POST /v1/chat/completions":
        return await complete(body, true, res);
      case "POST /v1/completions":
        return await complete(body, false, res);
      case "POST /v1/embeddings":
        return json(await embed(body));
      case "GET /v1/models":
        return json({ object: "list", data: [{ id: "llama.cpp", object: "model", owned_by: "llamacpp", meta: { n_ctx: 256 } }] });
      case "GET /stats":
        return json(stats);
      default:
        res.writeHead(404, { "Content-Type": "application/json" }).end('{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}');
    }
  } catch (err) {
    if (res.headersSent) return res.destroy();
    res.writeHead(500, { "Content-Type": "application/json" }).end(JSON.stringify({ error: { code: 500, message: String(err), type: "server_error" } }));
  }
});
server.keepAliveTimeout = 1; // ms: a client that sends another request may meet a connection that is closing
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
process.stdin.resume().on("end", () => process.exit(0));
