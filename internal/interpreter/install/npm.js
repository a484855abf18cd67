// Installs packages for all programs below NPM_CONFIG_PREFIX, and says which. Bun
// is told of the same places by variables of its own.
const fs = require('fs');
const path = require('path');
const { spawnSync } = require('child_process');

const modules = path.join(process.env.NPM_CONFIG_PREFIX, 'lib', 'node_modules');

function installed() {
  const found = new Map();
  const visit = (dir, name) => {
    try {
      found.set(name, JSON.parse(fs.readFileSync(path.join(dir, 'package.json'), 'utf8')).version);
    } catch { /* not a package */ }
  };
  let names = [];
  try { names = fs.readdirSync(modules); } catch { /* none yet */ }
  for (const name of names) {
    if (name.startsWith('.')) continue;
    if (!name.startsWith('@')) { visit(path.join(modules, name), name); continue; }
    for (const sub of fs.readdirSync(path.join(modules, name))) visit(path.join(modules, name, sub), name + '/' + sub);
  }
  return found;
}

const packages = process.argv.slice(1).filter((p) => p !== '--');
const before = installed();
// Where Bun runs this, there is no Node, which npm needs.
const command = process.versions.bun
  ? ['bun', 'add', '--global', '--no-progress', '--no-summary', '--', ...packages]
  : ['npm', 'install', '--global', '--loglevel=error', '--', ...packages];
const r = spawnSync(command[0], command.slice(1), { stdio: ['ignore', 'inherit', 'inherit'] });
if (r.error) {
  console.error('npm is not installed; on Debian and Ubuntu: apt-get install npm');
  process.exit(127);
}
if (r.status !== 0) process.exit(r.status === null ? 1 : r.status);
for (const [name, version] of [...installed()].sort()) {
  const asked = packages.some((p) => p === name || p.startsWith(name + '@'));
  if (before.get(name) !== version) console.log('installed', name, version);
  else if (asked) console.log('present', name, version);
}
