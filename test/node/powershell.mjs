// What a PowerShell script says, as the grammar of tree-sitter reads it, as
// JSON: faults, the commands that it calls, and its strings.
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Language, Parser } from "web-tree-sitter";

await Parser.init();
const grammar = fileURLToPath(import.meta.resolve("tree-sitter-powershell/tree-sitter-powershell.wasm"));
const parser = new Parser();
parser.setLanguage(await Language.load(grammar));
const tree = parser.parse(readFileSync(process.argv[2], "utf8"));

const said = { faults: [], commands: [], strings: [] };
const visit = (node) => {
  if (node.isError || node.isMissing) {
    said.faults.push(`line ${node.startPosition.row + 1}: ${node.text.slice(0, 80)}`);
  }
  if (node.type === "command_name") said.commands.push(node.text);
  if (node.type === "string_literal") said.strings.push(node.text);
  node.children.forEach(visit);
};
visit(tree.rootNode);
console.log(JSON.stringify(said));
