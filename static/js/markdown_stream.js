// Markdown that arrives in parts, as nodes in `root`. All blocks but the last are final, and cost nothing any more; the last is
// parsed anew each time, and its nodes are changed where they differ.

import { nodesOf, parser } from "./markdown.js";
import { parseOpen } from "./markdown_tail.js";
import { morph } from "./morph.js";

function parseEnd(md, text, references) {
  const env = { references: { ...references } };
  return { tokens: md.parse(text, env), env, shown: text };
}

// Where each line begins; behind the last line, if it is complete, one more begins.
function lineStarts(text) {
  const starts = [0];
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) starts.push(at + 1);
  return starts;
}

// Where the last block begins for certain, so that nothing that follows changes what is before it: its token and its place in
// the text. Its first line must be complete, and it is no formula without an end, which may turn out to be none. Where a link leads
// may go on behind its line; so a block right there is not certain either.
function lastBlock(tokens, text) {
  const starts = lineStarts(text);
  const begins = ({ level, nesting, meta }) => level === 0 && nesting >= 0 && !meta?.open;
  const blocks = tokens.flatMap((token, index) => (begins(token) ? [{ index, map: token.map }] : []));
  for (let which = blocks.length - 1; which > 0; which -= 1) {
    const { index, map: [line] } = blocks[which];
    const behind = blocks[which - 1].map[1] >= line || !text.slice(starts[line - 1], starts[line]).trim();
    if (line < starts.length - 1 && behind) return { index, offset: starts[line] };
  }
  return { index: 0, offset: 0 };
}

export class MarkdownStream {
  constructor(root) {
    this.root = root;
    this.text = "";
    this.carriage = ""; // the first half of a line break
    this.final = 0; // characters in blocks that are final
    this.nodes = 0; // their nodes
    this.references = {}; // where links lead: those of these blocks
    this.used = "{}"; // all of them, as they were last
  }

  // Takes more of the text; `paint` shows it.
  push(more) {
    const text = this.carriage + more;
    this.carriage = text.endsWith("\r") ? "\r" : "";
    const whole = text.slice(0, text.length - this.carriage.length);
    this.text += whole.replace(/\r\n?/g, "\n").replaceAll("\0", "\uFFFD");
  }

  paint() {
    const { tokens, env, shown } = this.parse(parseOpen);
    const { index, offset } = lastBlock(tokens, shown);
    const done = nodesOf(tokens.slice(0, index), env);
    morph(this.root, this.nodes, [...done, ...nodesOf(tokens.slice(index), env)]);
    if (!index) return;
    this.keepReferences(shown.slice(0, offset), env);
    this.nodes += done.length;
    this.final += offset;
  }

  // As `paint`, of a text that has come to its end.
  end() {
    if (this.carriage) this.push("\n");
    const { tokens, env } = this.parse(parseEnd);
    morph(this.root, this.nodes, nodesOf(tokens, env));
  }

  parse(how) {
    const parsed = how(parser, this.text.slice(this.final), this.references);
    if (!this.leadsElsewhere(parsed.env.references)) return parsed;
    this.final = this.nodes = 0;
    this.references = {};
    return how(parser, this.text, {});
  }

  // Whether a link in a final block leads elsewhere than when it was made.
  leadsElsewhere(references) {
    const now = JSON.stringify(references);
    if (now === this.used) return false;
    this.used = now;
    const labels = Object.keys(references).filter((label) => !(label in this.references));
    if (!this.final || !labels.length) return false;
    const before = parser.utils.normalizeReference(this.text.slice(0, this.final));
    return labels.some((label) => before.includes(label));
  }

  keepReferences(text, { references }) {
    if (Object.keys(references).length === Object.keys(this.references).length) return;
    const env = { references: { ...this.references } };
    parser.parse(text, env);
    this.references = env.references;
  }
}
