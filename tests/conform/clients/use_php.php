<?php
// SPDX-License-Identifier: Apache-2.0
//
// php-memcached does an application's work: php use_php.php HOST PORT text|binary

function check(bool $holds, string $what): void
{
    global $client;
    if (!$holds) {
        fwrite(STDERR, "$what: " . $client->getResultMessage() . "\n");
        exit(1);
    }
}

const PATIENCE_S = 120; // The limits only end a client that hangs.

[, $host, $port, $kind] = $argv;
$client = new Memcached();
$client->setOption(Memcached::OPT_BINARY_PROTOCOL, $kind === 'binary');
$client->setOption(Memcached::OPT_TCP_NODELAY, true);
$client->setOption(Memcached::OPT_CONNECT_TIMEOUT, 1000 * PATIENCE_S);
$client->setOption(Memcached::OPT_POLL_TIMEOUT, 1000 * PATIENCE_S);
$client->addServer($host, (int)$port);

check($client->flush(), 'flush');
check($client->get('k') === false && $client->getResultCode() === Memcached::RES_NOTFOUND, 'miss');
check($client->set('k', ['a' => 1, 'b' => [true, null, 2.5]]), 'set');
check($client->get('k') === ['a' => 1, 'b' => [true, null, 2.5]], 'get');
check(!$client->add('k', 1), 'add');
check($client->replace('k', 'text'), 'replace');
$client->setOption(Memcached::OPT_COMPRESSION, false);
check($client->set('s', 'mid'), 'set text');
check($client->append('s', '-end') && $client->prepend('s', 'begin-'), 'append');
check($client->get('s') === 'begin-mid-end', 'appended');

$many = [];
for ($number = 0; $number < 1000; $number++) {
    $many["key-$number"] = "value $number";
}
check($client->setMulti($many), 'setMulti');
check($client->getMulti(array_keys($many)) == $many, 'getMulti');
check($client->getDelayed(['key-1', 'key-2'], true), 'getDelayed');
check(count($client->fetchAll()) === 2, 'fetchAll');

$got = $client->get('k', null, Memcached::GET_EXTENDED);
check(isset($got['cas']) && $client->cas($got['cas'], 'k', 'swapped'), 'cas');
check(!$client->cas($got['cas'], 'k', 'again'), 'cas again');
check($client->getResultCode() === Memcached::RES_DATA_EXISTS, 'cas result');
check($client->get('k') === 'swapped', 'swapped');

$client->set('n', 10);
check($client->increment('n', 5) === 15 && $client->decrement('n', 20) === 0, 'increment');
if ($kind === 'binary') {
    check($client->increment('m', 1, 7) === 7, 'increment from nothing');
}
$large = random_bytes(900 * 1000);
check($client->set('large', $large) && $client->get('large') === $large, 'large');
check($client->touch('large', 100), 'touch');

$client->set('brief', 'v', 1);
$deadline = microtime(true) + PATIENCE_S;
while ($client->get('brief') !== false) {
    check(microtime(true) < $deadline, 'expiry');
    usleep(50000);
}
check($client->delete('k') && !$client->delete('k'), 'delete');
$statistics = array_values($client->getStats());
check($statistics[0]['curr_items'] > 900, 'stats');
check(count($client->getVersion()) === 1, 'version');
check($client->quit(), 'quit');
