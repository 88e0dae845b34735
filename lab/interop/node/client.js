// A client of gRPC that is told what to call: a JSON object in each line of standard input, and one in each line of standard
// output with what came of it. Messages are base64.
'use strict';

const grpc = require('@grpc/grpc-js');
const readline = require('readline');

const [address] = process.argv.slice(2);
const same = (bytes) => bytes;
const client = new grpc.Client(address, grpc.credentials.createInsecure(), {'grpc.max_receive_message_length': -1});

// call makes one call.
function call({method, request = '', metadata = {}, timeout, cancel}) {
  const fields = new grpc.Metadata();
  for (const [name, value] of Object.entries(metadata)) {
    fields.set(name, name.endsWith('-bin') ? Buffer.from(value, 'base64') : value);
  }
  const options = timeout ? {deadline: Date.now() + timeout} : {};
  return new Promise((resolve) => {
    const ended = client.makeUnaryRequest(method, same, same, Buffer.from(request, 'base64'), fields, options, (error, reply) => {
      resolve(error ? {code: error.code, details: error.details} : {code: 0, reply: reply.toString('base64')});
    });
    if (cancel) {
      setImmediate(() => ended.cancel());
    }
  });
}

// calls makes as many calls as are asked for, so many at a time.
async function calls(asked) {
  const {count = 1, at_once: atOnce = 1} = asked;
  const replies = [];
  let begun = 0;
  const one = async () => {
    while (begun < count) {
      begun++;
      replies.push(await call(asked));
    }
  };
  await Promise.all(Array.from({length: Math.min(atOnce, count)}, one));
  return replies;
}

readline.createInterface({input: process.stdin}).on('line', async (line) => {
  console.log(JSON.stringify(await calls(JSON.parse(line))));
}).on('close', () => client.close());
