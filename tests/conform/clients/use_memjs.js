// SPDX-License-Identifier: Apache-2.0
//
// memjs, which speaks the binary protocol, does an application's work:
// node use_memjs.js HOST PORT [NAME PASSWORD]
'use strict';

const assert = require('assert');
const crypto = require('crypto');
const memjs = require('memjs');

const PATIENCE_S = 120; // The limits only end a client that hangs.
const [host, port, username, password] = process.argv.slice(2);

async function expired(client, key) {
  const deadline = Date.now() + 1000 * PATIENCE_S;
  while ((await client.get(key)).value !== null) {
    assert(Date.now() < deadline);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

async function work(client) {
  await client.flush();
  assert.strictEqual((await client.get('k')).value, null);
  assert(await client.set('k', 'v', { expires: 0 }));
  const { value, flags } = await client.get('k');
  assert.strictEqual(value.toString(), 'v');
  assert.strictEqual(flags.readUInt32BE(0), 0);
  assert.strictEqual(await client.add('k', 'w', {}), false);
  assert(await client.replace('k', 'mid', {}));
  assert(await client.append('k', '-end'));
  assert.strictEqual((await client.get('k')).value.toString(), 'mid-end');

  const keys = Array.from({ length: 500 }, (_, number) => `key-${number}`);
  await Promise.all(keys.map((key) => client.set(key, `value of ${key}`, {})));
  const found = await Promise.all(keys.map((key) => client.get(key)));
  found.forEach((item, number) =>
    assert.strictEqual(item.value.toString(), `value of ${keys[number]}`));

  assert.strictEqual((await client.increment('n', 5, { initial: 10 })).value, 10);
  assert.strictEqual((await client.increment('n', 5, {})).value, 15);
  assert.strictEqual((await client.decrement('n', 20, {})).value, 0);

  const large = crypto.randomBytes(900 * 1000);
  assert(await client.set('large', large, {}));
  assert(large.equals((await client.get('large')).value));
  assert(await client.touch('large', 100));

  await client.set('brief', 'v', { expires: 1 });
  await expired(client, 'brief');
  assert.strictEqual(await client.delete('k'), true);
  assert.strictEqual(await client.delete('k'), false);
}

const client = memjs.Client.create(`${host}:${port}`, { username, password, timeout: PATIENCE_S });
work(client).then(() => client.quit(), (error) => {
  console.error(error);
  process.exit(1);
});
