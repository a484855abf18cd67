// Tells of the packages that are installed for all programs.
const fs = require('fs');
const path = require('path');
for (const dir of (process.env.NODE_PATH || '').split(':')) {
  let names = [];
  try { names = fs.readdirSync(dir); } catch { continue; }
  const visit = (name) => {
    try {
      console.log(name, JSON.parse(fs.readFileSync(path.join(dir, name, 'package.json'), 'utf8')).version, 'user');
    } catch { /* not a package */ }
  };
  for (const name of names) {
    if (name.startsWith('@')) for (const sub of fs.readdirSync(path.join(dir, name))) visit(name + '/' + sub);
    else if (!name.startsWith('.')) visit(name);
  }
}
