const fs = require('fs');
function take(n) {
  const b = Buffer.alloc(n);
  for (let at = 0; at < n;) {
    const got = fs.readSync(3, b, at, n - at, null);
    if (!got) process.exit(0);
    at += got;
  }
  return b;
}
new (require('vm').Script)(take(Number(take(8))).toString(), { filename: 'glovebox:kernel' }).runInThisContext()(require, process, { take, load: (name, options) => import(name, options) });
