// The official JavaScript client, unchanged: `node openai_client.mjs <base url> <key> <model>`. Prints what it saw as JSON.
import OpenAI from "openai";

const [baseURL, apiKey, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey, maxRetries: 0 });
const call = { model, messages: [{ role: "user", content: "Tell me of the sea" }], max_tokens: 30 };
const seen = {};

const whole = await client.chat.completions.create(call);
seen.whole = whole.choices[0].message.content;
seen.usage = whole.usage.completion_tokens;

seen.chunks = "";
for await (const chunk of await client.chat.completions.create({ ...call, stream: true })) {
  seen.chunks += chunk.choices[0]?.delta.content ?? "";
}

const stream = client.chat.completions.stream({ ...call, stream_options: { include_usage: true } });
seen.final = await stream.finalContent();
seen.totalTokens = (await stream.totalUsage()).completion_tokens;

seen.models = [];
for await (const each of client.models.list()) seen.models.push(each.id);

const failing = async (options, changes) => {
  try {
    await client.withOptions(options).chat.completions.create({ ...call, ...changes });
  } catch (error) {
    return { kind: error.constructor.name, status: error.status, code: error.code, param: error.param };
  }
};
seen.unknownModel = await failing({}, { model: "none" });
seen.badKey = await failing({ apiKey: "sk-nobody" }, {});
seen.badValue = await failing({}, { temperature: 9 });
seen.timeout = await failing({ timeout: 500 }, { max_tokens: 3000, seed: 1 });

const left = await client.chat.completions.create({ ...call, max_tokens: 3000, stream: true });
for await (const chunk of left) {
  if (chunk.choices[0]?.delta.content) break; // leaving the loop aborts the request
}
console.log(JSON.stringify(seen));
