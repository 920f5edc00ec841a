// Checks a client of Node against the gateway: client.mjs NAME. Prints as client.py does.
const { BASE, CONTROL } = process.env;
const name = process.argv[2];
const long = "You are a careful assistant. ".repeat(12) + name;
const control = async (path) => (await fetch(CONTROL + path)).json();
const want = (ok, what) => { if (!ok) throw new Error(what); };

async function check(what, f) {
  await control("/reset");
  try {
    console.log(`${what}\tok\t${(await f()) ?? ""}`);
  } catch (e) {
    console.log(`${what}\tFAILED\t${e.name}: ${String(e.message).slice(0, 200).replaceAll("\n", " ")}`);
  }
}

async function stays(say) {
  const said = [{ role: "system", content: long }, { role: "user", content: "hello" }];
  for (let turn = 0; turn < 3; turn++) {
    said.push({ role: "assistant", content: await say(said) });
    said.push({ role: "user", content: `and then? ${turn}` });
  }
  const s = await control("/seen");
  want(s.requests === 3 && s.engines.length === 1, JSON.stringify(s));
}

async function retried(ask, status = 503) {
  await control(`/fail?n=1&status=${status}`);
  await ask();
  const s = await control("/seen");
  want(s.requests === 2 && s.served === 1, JSON.stringify(s));
}

async function left(leave) {
  await leave();
  for (let i = 0; i < 500; i++) {
    if ((await control("/seen")).left === 1) return;
    await new Promise((r) => setTimeout(r, 20));
  }
  throw new Error("the engine goes on");
}

const one = [{ role: "user", content: "hello" }];
const tools = [{ type: "function", function: { name: "weather", parameters: { type: "object", properties: {} } } }];
if (name === "openai") {
  const { default: OpenAI } = await import("openai");
  const { VERSION } = await import("openai/version");
  console.log(`version\tok\topenai ${VERSION}`);
  const c = new OpenAI({ baseURL: BASE + "/v1", apiKey: "sk-test" });
  const ask = (messages, more = {}) => c.chat.completions.create({ model: "m", max_tokens: 20, messages, ...more });
  await check("whole", async () => want((await ask(one)).choices[0].message.content, "no text"));
  await check("streams", async () => {
    let n = 0;
    for await (const p of await ask(one, { stream: true })) n += p.choices[0]?.delta?.content ? 1 : 0;
    want(n > 2, `${n} parts`);
  });
  await check("tools", async () => want((await ask(one, { tools })).choices, "no choice"));
  await check("errors", async () => {
    try {
      await ask(one, { kv_transfer_params: {} });
    } catch (e) {
      want(e.status === 400 && (await control("/seen")).requests === 0, e.message);
      return e.name;
    }
    throw new Error("no error");
  });
  await check("retries", () => retried(() => ask(one)));
  await check("cancel", () => left(async () => {
    const s = await ask(one, { stream: true, max_tokens: 4000, min_tokens: 4000, ignore_eos: true });
    for await (const _ of s) { s.controller.abort(); break; }
  }));
  await check("turns", () => stays(async (said) => (await ask(said)).choices[0].message.content));
  await check("responses", async () => {
    const a = await c.responses.create({ model: "m", input: "hello" });
    const b = await c.responses.create({ model: "m", input: "go on", previous_response_id: a.id });
    want((await c.responses.retrieve(b.id)).id === b.id, "another one");
    want((await control("/seen")).engines.length === 1, "they went to several engines");
  });
  await check("uploads", async () => {
    const { toFile } = OpenAI;
    want((await c.files.create({ file: await toFile(Buffer.from('{"a":1}\n'.repeat(1000)), "a.jsonl"), purpose: "batch" })).id, "no id");
  });
} else if (name === "anthropic") {
  const { default: Anthropic } = await import("@anthropic-ai/sdk");
  const { VERSION } = await import("@anthropic-ai/sdk/version");
  console.log(`version\tok\t@anthropic-ai/sdk ${VERSION}`);
  const c = new Anthropic({ baseURL: BASE, apiKey: "sk-test" });
  const ask = (said, more = {}) => c.messages.create({
    model: "m", max_tokens: 20, system: said.find((m) => m.role === "system")?.content ?? "short",
    messages: said.filter((m) => m.role !== "system"), ...more,
  });
  await check("whole", async () => want((await ask(one)).content[0].text, "no text"));
  await check("streams", async () => {
    let n = 0;
    for await (const e of c.messages.stream({ model: "m", max_tokens: 20, messages: one })) n += e.type === "content_block_delta" ? 1 : 0;
    want(n > 2, `${n} parts`);
  });
  await check("retries", () => retried(() => ask(one), 529));
  await check("cancel", () => left(async () => {
    const s = await ask(one, { stream: true, max_tokens: 4000, min_tokens: 4000, ignore_eos: true });
    for await (const _ of s) { s.controller.abort(); break; }
  }));
  await check("turns", () => stays(async (said) => (await ask(said)).content[0].text));
} else if (name === "ai") {
  process.env.AI_SDK_LOG_WARNINGS = "false";
  globalThis.AI_SDK_LOG_WARNINGS = false;
  const { generateText, streamText } = await import("ai");
  const { createOpenAICompatible } = await import("@ai-sdk/openai-compatible");
  const { readFile } = await import("node:fs/promises");
  const { version } = JSON.parse(await readFile("node_modules/ai/package.json"));
  console.log(`version\tok\tai ${version}`);
  const model = createOpenAICompatible({ name: "warmroute", baseURL: BASE + "/v1", apiKey: "sk-test" })("m");
  const ask = (messages) => {
    const system = messages.find((m) => m.role === "system")?.content;
    return generateText({ model, system, messages: messages.filter((m) => m.role !== "system"), maxOutputTokens: 20 });
  };
  await check("whole", async () => want((await ask(one)).text, "no text"));
  await check("streams", async () => {
    let n = 0;
    for await (const _ of streamText({ model, messages: one, maxOutputTokens: 20 }).textStream) n++;
    want(n > 2, `${n} parts`);
  });
  await check("retries", () => retried(() => ask(one)));
  await check("turns", () => stays(async (said) => (await ask(said)).text));
}
