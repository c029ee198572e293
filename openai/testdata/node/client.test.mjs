// The official OpenAI client for JavaScript against a server of this module.
// Run by TestTheOfficialNodeClient, which sets HAIKU_BASE_URL.
import assert from 'node:assert/strict';
import test from 'node:test';
import OpenAI from 'openai';

const client = new OpenAI({ baseURL: process.env.HAIKU_BASE_URL, apiKey: 'none', maxRetries: 0 });
const chat = {
  model: 'haiku-tiny',
  messages: [{ role: 'user', content: 'Write a haiku about autumn.' }],
  temperature: 0,
};

test('streamed and whole chat completions are the same', async () => {
  const whole = await client.chat.completions.create(chat);
  assert.match(whole.choices[0].message.content, /autumn/);
  assert.equal(whole.choices[0].finish_reason, 'stop');

  const stream = await client.chat.completions.create({
    ...chat, stream: true, stream_options: { include_usage: true },
  });
  let text = '';
  let usage = null;
  let finish = null;
  for await (const chunk of stream) {
    text += chunk.choices[0]?.delta.content ?? '';
    finish = chunk.choices[0]?.finish_reason ?? finish;
    usage = chunk.usage ?? usage;
  }
  assert.equal(text, whole.choices[0].message.content);
  assert.equal(finish, 'stop');
  assert.deepEqual(usage, whole.usage);
});

test('the stream helper assembles choices and log-probabilities', async () => {
  const runner = client.chat.completions.stream({
    ...chat, n: 2, max_tokens: 5, logprobs: true, top_logprobs: 2,
    messages: [{ role: 'user', content: [{ type: 'text', text: 'Write a haiku about autumn.' }] }],
  });
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices.length, 2);
  for (const choice of final.choices) {
    assert.equal(choice.finish_reason, 'length');
    assert.equal(choice.logprobs.content.length, 5);
    assert.equal(choice.logprobs.content[0].top_logprobs.length, 2);
  }
});

test('tools are called, streamed and whole', async () => {
  const params = {
    model: 'caller',
    messages: [{ role: 'user', content: 'What is the weather in Kyoto and Nara?' }],
    tools: [{ type: 'function', function: { name: 'weather', parameters: { type: 'object', properties: {} } } }],
    tool_choice: 'auto', reasoning_effort: 'low',
  };
  const call = (id, city) => (
    { id, type: 'function', function: { name: 'weather', arguments: JSON.stringify({ city }) } });
  const expected = [call('call_a', 'Kyoto'), call('call_b', 'Nara')];
  const whole = await client.chat.completions.create(params);
  assert.equal(whole.choices[0].finish_reason, 'tool_calls');
  assert.equal(whole.choices[0].message.content, null);
  assert.equal(whole.choices[0].message.reasoning_content, 'Two cities…');
  assert.deepEqual(whole.choices[0].message.tool_calls, expected);

  const runner = client.chat.completions.stream(params);
  let reasoning = '';
  for await (const chunk of runner) reasoning += chunk.choices[0]?.delta.reasoning_content ?? '';
  assert.equal(reasoning, 'Two cities…');
  const final = await runner.finalChatCompletion();
  assert.equal(final.choices[0].finish_reason, 'tool_calls');
  const called = final.choices[0].message.tool_calls.map(({ id, type, function: f }) => (
    { id, type, function: { name: f.name, arguments: f.arguments } }));
  assert.deepEqual(called, expected);

  const answer = await client.chat.completions.create({
    ...params,
    messages: [...params.messages, whole.choices[0].message,
      { role: 'tool', tool_call_id: 'call_a', content: 'rain' }, { role: 'tool', tool_call_id: 'call_b', content: 'sun' }],
  });
  assert.equal(answer.choices[0].message.content, '"call_a" rain. "call_b" sun. ');
  await assert.rejects(client.chat.completions.create({ ...params, model: 'haiku-tiny' }), (err) => {
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.param, 'tools');
    return true;
  });
});

test('completions, streamed and whole', async () => {
  const params = { model: 'haiku-tiny', prompt: 'autumn', max_tokens: 6, temperature: 0 };
  const whole = await client.completions.create(params);
  let text = '';
  for await (const chunk of await client.completions.create({ ...params, stream: true })) {
    text += chunk.choices[0].text;
  }
  assert.equal(text, whole.choices[0].text);
});

test('embeddings, which this client asks for in base64', async () => {
  const input = ['autumn wind', 'the old pond'];
  const packed = await client.embeddings.create({ model: 'haiku-tiny', input });
  const plain = await client.embeddings.create({ model: 'haiku-tiny', input, encoding_format: 'float' });
  assert.equal(packed.data.length, 2);
  assert.equal(packed.data[1].embedding.length, 128);
  for (const i of [0, 1]) {
    const floats = plain.data[i].embedding;
    packed.data[i].embedding.forEach((x, d) => assert.ok(Math.abs(x - floats[d]) < 1e-6));
  }
  await assert.rejects(client.embeddings.create({ model: 'haiku-tiny', input: '' }), OpenAI.BadRequestError);
});

test('models are listed and found', async () => {
  const ids = [];
  for await (const model of client.models.list()) ids.push(model.id);
  assert.deepEqual(ids, ['caller', 'faulty', 'haiku-tiny']);
  assert.equal((await client.models.retrieve('haiku-tiny')).id, 'haiku-tiny');
  await assert.rejects(client.models.retrieve('gpt-9'), OpenAI.NotFoundError);
});

test('errors have their classes', async () => {
  await assert.rejects(client.chat.completions.create({ ...chat, temperature: 7 }), (err) => {
    assert.ok(err instanceof OpenAI.BadRequestError);
    assert.equal(err.param, 'temperature');
    return true;
  });
  await assert.rejects(client.chat.completions.create({ ...chat, model: 'gpt-9' }), OpenAI.NotFoundError);
  const stream = await client.chat.completions.create({ ...chat, model: 'faulty', stream: true });
  let text = '';
  await assert.rejects(async () => {
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? '';
  }, /the server failed to answer/);
  assert.equal(text, 'one two ');
});

test('leaving a stream ends it', async () => {
  const stream = await client.chat.completions.create({ ...chat, stream: true });
  for await (const chunk of stream) {
    assert.ok(chunk.id);
    break;
  }
  assert.ok(stream.controller.signal.aborted);
});
