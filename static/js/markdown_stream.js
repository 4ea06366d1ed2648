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

// One huge block: a list, a table, nested emphasis. Parsing it anew takes longer and longer, so it is parsed in steps that grow
// the less the slower they are, and once a step was slow, what follows stands there as plain text until the block ends.
const STEP = 8_000; // characters
const SLOW_MS = 100;
const MOST_AT_END = 32_000; // of a block that is parsed once more when the text ends; the server's rendering follows anyway
const BLOCK_END = /\n[ \t]*\n(?=[^\s>|*+\-\d])/; // a line of text behind an empty one

export class MarkdownStream {
  constructor(root) {
    this.root = root;
    this.plain = null; // the node that takes what is not parsed
    this.plainFrom = 0;
    this.wasPlain = false;
    this.open = 0; // characters of the last block, when it was painted
    this.took = 0; // ms
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
    if (this.plain && !this.resume()) return this.writePlain();
    for (let whole = false; !whole; ) {
      const limit = this.nextLimit();
      whole = limit >= this.text.length;
      const start = performance.now();
      const { tokens, shown } = this.paintTo(limit);
      this.took = performance.now() - start;
      const slow = this.took > SLOW_MS && this.open > STEP / 2;
      if (slow && tokens.findLast(({ level }) => level === 0)?.type !== "fence") {
        this.plainFrom = shown;
        return this.writePlain();
      }
    }
  }

  // At the end of a line, where there is one.
  nextLimit() {
    const growth = this.took > SLOW_MS / 5 ? 1.25 : 2;
    const most = this.final + Math.max(STEP, Math.ceil(growth * this.open));
    if (most >= this.text.length) return this.text.length;
    const line = this.text.lastIndexOf("\n", most - 1) + 1;
    return line > this.final + this.open ? line : most;
  }

  paintTo(limit) {
    const { tokens, env, shown } = this.parse(parseOpen, limit);
    const { index, offset } = lastBlock(tokens, shown);
    const behind = this.final + shown.length;
    const done = nodesOf(tokens.slice(0, index), env);
    morph(this.root, this.nodes, [...done, ...nodesOf(tokens.slice(index), env)]);
    if (index) {
      this.keepReferences(shown.slice(0, offset), env);
      this.nodes += done.length;
      this.final += offset;
    }
    this.open = limit - this.final;
    return { tokens, shown: behind };
  }

  writePlain() {
    if (!this.plain) {
      const paragraph = document.createElement("p");
      paragraph.className = "plain";
      this.plain = paragraph.appendChild(document.createTextNode(""));
      this.root.append(paragraph);
      this.wasPlain = true;
    }
    this.plain.appendData(this.text.slice(this.plainFrom + this.plain.length));
  }

  // Whether the block that is plain has ended: what follows is parsed again.
  resume() {
    const found = BLOCK_END.exec(this.text.slice(this.plainFrom));
    if (!found) return false;
    const end = this.plainFrom + found.index + found[0].length;
    this.plain.data = this.text.slice(this.plainFrom, end).trimEnd();
    this.plain = null;
    this.final = end;
    this.open = 0;
    this.nodes = this.root.childNodes.length;
    return true;
  }

  // As `paint`, of a text that has come to its end.
  end() {
    if (this.carriage) this.push("\n");
    if (this.plain || this.text.length - this.final > MOST_AT_END) return this.paint();
    const { tokens, env } = this.parse(parseEnd);
    morph(this.root, this.nodes, nodesOf(tokens, env));
  }

  parse(how, limit = this.text.length) {
    const parsed = how(parser, this.text.slice(this.final, limit), this.references);
    if (!this.leadsElsewhere(parsed.env.references)) return parsed;
    this.final = this.nodes = 0;
    this.references = {};
    return how(parser, this.text.slice(0, limit), {});
  }

  // Whether a link in a final block leads elsewhere than when it was made.
  leadsElsewhere(references) {
    const now = JSON.stringify(references);
    if (now === this.used) return false;
    this.used = now;
    const labels = Object.keys(references).filter((label) => !(label in this.references));
    if (!this.final || this.wasPlain || !labels.length) return false;
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
